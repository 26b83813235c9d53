// speeds.hpp: what links of each kind carry in practice, by what is known of their ends: one table a kind. The figures
// are those NCCL reckons with, so that its users' files give the paths they are used to.
#pragma once
#include <limits>
#include <string_view>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// GB/s each way; `assumed`: something it depends on is unknown.
struct Speed {
    double bandwidth_gbs = 0;
    bool assumed = false;
};

constexpr double local_gbs = 5000;                                    // within a device: never the bottleneck
constexpr double infinite = std::numeric_limits<double>::infinity();  // of a price or a distance: there is no way

// NVLinks, or an AMD GPU's XGMI links.
Speed nvlink_speed(const Gpu& gpu, int links);
// `link_speed` as sysfs and NCCL write it. Unknown: generation 3, 16 lanes.
Speed pci_speed(const Pci& pci);
// GT/s of a lane, of such a text; 0: it names none of PCI's rates.
double pci_transfers(std::string_view text);
// Between two sockets: QPI, UPI, Infinity Fabric and their like; the slower one's.
Speed sys_speed(const Cpu& one, const Cpu& other);
Speed port_speed(const Port& port);
// One way, of an unloaded link, for small messages: for comparing ways, until somebody measures.
double latency_us(LinkKind kind);
double network_latency_us(const Port& port);

}  // namespace weft::internal::topology
