// hardware.hpp: the facts about a host from hwloc, /sys, libibverbs and NVML, before they become a graph. A later
// source adds facts that the earlier ones left unknown.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/drivers/hwloc/hwloc.hpp"
#include "src/drivers/nvml/nvml.hpp"
#include "src/drivers/verbs/verbs.hpp"
#include "topology/detect/system_files.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct NumaDomain {
    int number = 0;
    CpuMask threads;
};
struct Package {
    int number = 0;
    CpuMask threads;
};
struct CacheUnit {
    int level = 0;
    int64_t bytes = 0;
    CpuMask threads;
};

// A PCI device or bridge.
struct PciDevice {
    Pci pci;
    std::vector<std::string> bridges;  // bus ids of the bridges above it, nearest first
    int numa = unknown;
    NodeKind kind() const { return kind_of(pci); }
};

// A port with its name in the operating system. Of a device, or of software.
struct Interface {
    Port port;
    std::string busid;
    bool rdma = false;
    std::optional<bool> dma_buf;  // whether the device registers memory by dma-buf
};

struct Nvlinks {
    std::string busid;                  // of the GPU to which they belong
    std::vector<Statement> statements;  // without their source
};

struct Hardware {
    std::string host;  // hash, see Graph::host
    std::string arch, vendor;
    int family = unknown, model = unknown;
    std::vector<NumaDomain> domains;
    std::vector<Package> packages;
    std::vector<CacheUnit> caches;
    std::vector<CpuMask> cores;
    CpuMask online;                            // empty: unknown
    std::map<std::string, PciDevice> devices;  // by bus id
    std::map<std::string, Gpu> gpus;           // likewise
    std::vector<Interface> interfaces;
    std::vector<Nvlinks> links;
    std::vector<std::string> notes;
};

// Each source adds its facts to `hardware`, and a note for each fact that it cannot provide.
void add_hwloc(const hwloc::HwlocTopology& machine, Hardware& hardware);
void add_cpus(SystemFiles& sys, SystemFiles& proc, Hardware& hardware);
void add_pci_devices(SystemFiles& sys, Hardware& hardware);
void add_interfaces(SystemFiles& sys, Hardware& hardware);
// Call after the interfaces: it also adds facts to known ones.
void add_verbs(const std::vector<verbs::RdmaDevice>& devices, SystemFiles& sys, Hardware& hardware);
void add_gpus(const nvml::Nvml& nvml, Hardware& hardware);
// Whether NICs can access GPU memory, by nvidia-peermem or dma-buf, if the host has both.
void add_gpudirect(SystemFiles& sys, SystemFiles& proc, Hardware& hardware);

// The connected graph of the hardware.
Result<Graph> make_graph(Hardware& hardware, const CpuMask& allowed);

// "0c42:a103:0065:ba1a" as in NCCL: the number with these bytes in the memory of a little-endian machine.
std::string guid_of(const std::string& text);

// The GID of a port for other hosts: over Ethernet that of RoCE version 2 with an IPv4 address, if there is one.
class BestGid {
  public:
    void offer(const std::string& gid, bool roce_v2);
    const std::string& text() const { return best_; }

  private:
    std::string best_;
    int rank_ = 0;
};

// The bus ids in a path of /sys, from the host bridge on.
std::vector<std::string> bus_ids_in(const std::string& path);

}  // namespace weft::internal::topology
