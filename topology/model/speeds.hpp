// speeds.hpp: the usable bandwidth of links by kind, and by the known properties of their ends: one table for each
// kind. The values are NCCL's, so that files of its users give the paths that they expect.
#pragma once
#include <limits>
#include <string_view>

#include "topology/model/node.hpp"

namespace weft::internal::topology {

// GB/s in each direction. `assumed`: a property that it depends on is unknown.
struct Speed {
    double bandwidth_gbs = 0;
    bool assumed = false;
};

constexpr double local_gbs = 5000;  // within a device, where it is never the bottleneck
constexpr double infinite = std::numeric_limits<double>::infinity();  // a price or distance without a path

// NVLinks, or an AMD GPU's XGMI links.
Speed nvlink_speed(const Gpu& gpu, int links);
// `link_speed` in the form of sysfs and NCCL. Unknown: generation 3, 16 lanes.
Speed pci_speed(const Pci& pci);
// The GT/s of a lane in such a text; 0: no rate of PCI.
double pci_transfers(std::string_view text);
// Between two sockets: QPI, UPI, Infinity Fabric or similar; the slower of the two.
Speed sys_speed(const Cpu& one, const Cpu& other);
Speed port_speed(const Port& port);
// One way over an idle link, for small messages. An estimate for comparing paths.
double latency_us(LinkKind kind);
double network_latency_us(const Port& port);

}  // namespace weft::internal::topology
