#include "topology/nearest_ports.hpp"

#include "src/base/cpu.hpp"
#include "topology/host_graph.hpp"

namespace weft::internal::topology {

std::vector<int> nearest_ports(std::span<const NicPort> ports, const std::string& gpu, int rank) {
    return order_of_ports(host_graph(!gpu.empty()), ports,
                          {.gpu = gpu, .cores = CpuMask::from_set(allowed_cpus()), .rank = rank});
}

}  // namespace weft::internal::topology
