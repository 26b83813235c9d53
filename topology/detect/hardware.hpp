// hardware.hpp: what the sources of facts about a host say, each as far as it knows, before it is made a graph: hwloc,
// /sys, libibverbs, NVML. A later source fills in what those before it left unknown.
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
    std::vector<std::string> bridges;  // bus ids of those above it, nearest first
    int numa = unknown;
    NodeKind kind() const { return kind_of(pci); }
};

// A port as the operating system names it. Of one device, or of software.
struct Interface {
    Port port;
    std::string busid;
    bool rdma = false;
    std::optional<bool> dma_buf;  // whether the device registers what a dma-buf names
};

struct Nvlinks {
    std::string busid;                  // of the GPU whose they are
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

// What each source knows is added to `hardware`; what it cannot tell it says there.
void add_hwloc(const hwloc::HwlocTopology& machine, Hardware& hardware);
void add_cpus(SystemFiles& sys, SystemFiles& proc, Hardware& hardware);
void add_pci_devices(SystemFiles& sys, Hardware& hardware);
void add_interfaces(SystemFiles& sys, Hardware& hardware);
// After the interfaces: of those that are known it fills in, too.
void add_verbs(const std::vector<verbs::RdmaDevice>& devices, SystemFiles& sys, Hardware& hardware);
void add_gpus(const nvml::Nvml& nvml, Hardware& hardware);
// Whether NICs reach the memory of GPUs, where there are both: by nvidia-peermem or dma-buf.
void add_gpudirect(SystemFiles& sys, SystemFiles& proc, Hardware& hardware);

// The graph of it, connected.
Result<Graph> make_graph(Hardware& hardware, const CpuMask& allowed);

// "0c42:a103:0065:ba1a" as NCCL writes it: the number that lies so in the memory of a little-endian machine.
std::string guid_of(const std::string& text);

// Of a port's GIDs the one by which other hosts reach it: over Ethernet that of RoCE version 2 and an IPv4 address, if it
// has one.
class BestGid {
  public:
    void offer(const std::string& gid, bool roce_v2);
    const std::string& text() const { return best_; }

  private:
    std::string best_;
    int rank_ = 0;
};

// The bus ids among the parts of a path of /sys, from the host bridge on.
std::vector<std::string> bus_ids_in(const std::string& path);

}  // namespace weft::internal::topology
