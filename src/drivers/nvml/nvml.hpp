// nvml.hpp: NVIDIA's management library, opened at run time: NVLink links and where they end, what GPUs may do to each
// other, which NVLink domain a GPU is in. All of it is optional: what cannot be had is unknown, never an error of Weft.
#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::nvml {

// As the library lays them out.
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
    int pcie_generation = 0;  // the most that it and its slot can; 0: unknown
    int pcie_lanes = 0;
};

// NVLink-C2C to the GPU's own cpu.
struct ChipToChip {
    int count = 0;          // active links
    int bandwidth_mbs = 0;  // of each, each way
};

// GPUs with the same cluster and clique reach each other by NVLink, on other hosts too.
struct NvlinkDomain {
    std::array<uint8_t, 16> cluster{};
    uint32_t clique = 0;
};

// Why one GPU may not read, or write, another's memory; or that it may.
enum class PeerStatus { ok, not_supported, disabled, unknown };

// GPUs are named by their bus ids, 0000:1b:00.0, for CUDA's ordinals count the visible ones only. Thread-safe: one
// lock, for old libraries are not.
class Nvml {
  public:
    // The process's, opened at the first call; else the sentence why there is none.
    static Result<const Nvml*> get();
    // Another one, for tests. `path` as in WEFT_NVML_LIBRARY.
    static Result<const Nvml*> open(const std::string& path);

    // Those that this process may see. What cannot be asked, as GPUs that are lost, is said in `notes`.
    std::vector<Listed> devices(std::vector<std::string>& notes) const;
    std::string driver_version() const;                               // 580.65.06; empty: unknown
    std::vector<NvlinkState> links(const std::string& bus_id) const;  // the active ones
    int links_down(const std::string& bus_id) const;                  // that the GPU has, but are not active
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
