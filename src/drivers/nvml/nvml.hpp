// nvml.hpp: NVIDIA's management library, opened at run time: NVLinks and their ends, which GPUs may access each other,
// and the NVLink domain of a GPU. All of it is optional: missing data is unknown, never an error of Weft.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::nvml {

// These structs have the library's memory layout.
using Device = struct DeviceHandle*;
struct PciInfo {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_ids, subsystem_ids;
    char bus_id[32];
};
static_assert(sizeof(PciInfo) == 68);
struct FabricInfo {
    unsigned version;
    uint8_t cluster[16];
    int status;
    unsigned clique;
    uint8_t state;
    unsigned health;
};
struct FieldValue {
    unsigned field, scope;
    long long timestamp_us, latency_us;
    int type;  // of `value`: 0 double, 1 and 2 unsigned, 3 unsigned long long, 4 long long, 5 int
    int result;
    union {
        double real;
        unsigned word;
        unsigned long long_word;
        unsigned long long wide;
        long long signed_wide;
        int number;
    } value;
};
static_assert(sizeof(FieldValue) == 40);

struct NvmlFunctions {
#define WEFT_NVML_FUNCTION(name, arguments) int(*name) arguments = nullptr;
#include "src/drivers/nvml/nvml.def"
#undef WEFT_NVML_FUNCTION
};

enum class RemoteKind { gpu, npu, nvswitch, unknown };
struct NvlinkState {
    int link = 0;
    RemoteKind remote = RemoteKind::unknown;
    std::string remote_bus_id;  // empty: hidden, as in virtual machines
    bool peer_to_peer = false;
};

// A GPU as the library lists it.
struct Listed {
    int index = 0;
    std::string bus_id;
    int sm = -1;              // 90: compute capability 9.0; -1: unknown
    int pcie_generation = 0;  // the highest that the GPU and its slot support; 0: unknown
    int pcie_lanes = 0;
};

// NVLink-C2C from a GPU to its own CPU.
struct ChipToChip {
    int count = 0;          // active links
    int bandwidth_mbs = 0;  // of each link, in each direction
};

// GPUs with the same cluster and clique reach each other by NVLink, on other hosts too.
struct NvlinkDomain {
    std::array<uint8_t, 16> cluster{};
    uint32_t clique = 0;
};

// Why one GPU may not read or write another GPU's memory, or that it may.
enum class PeerStatus { ok, not_supported, disabled, unknown };

// GPUs are named by bus id (0000:1b:00.0), because CUDA's ordinals count visible GPUs only. Thread-safe: all calls take
// one lock, because old versions of the library are not thread-safe.
class Nvml {
  public:
    // The process's instance, opened at the first call. On failure the error has the reason.
    static Result<const Nvml*> get();
    // Another instance, for tests. `path` as in WEFT_NVML_LIBRARY.
    static Result<const Nvml*> open(const std::string& path);

    // The GPUs that this process may see. `notes` gets a sentence for each GPU that cannot be queried, such as a lost
    // one.
    std::vector<Listed> devices(std::vector<std::string>& notes) const;
    std::string driver_version() const;                               // 580.65.06; empty: unknown
    std::vector<NvlinkState> links(const std::string& bus_id) const;  // the active ones
    int links_down(const std::string& bus_id) const;                  // links that the GPU has but that are not active
    std::optional<ChipToChip> chip_to_chip(const std::string& bus_id) const;
    std::optional<NvlinkDomain> fabric(const std::string& bus_id) const;
    PeerStatus reading(const std::string& from, const std::string& to) const { return peer_status(from, to, 0); }
    PeerStatus writing(const std::string& from, const std::string& to) const { return peer_status(from, to, 1); }
    PeerStatus over_nvlink(const std::string& from, const std::string& to) const { return peer_status(from, to, 2); }

  private:
    Nvml() = default;
    Device find(const std::string& bus_id) const;
    std::optional<long long> field(Device device, unsigned number, unsigned scope) const;
    PeerStatus peer_status(const std::string& from, const std::string& to, int index) const;
    NvmlFunctions functions_;
    mutable std::mutex calling_;
};

}  // namespace weft::internal::nvml
