// nearest_ports.hpp: the network ports of this host in the order in which a rank of this process should use them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/search/nics.hpp"

namespace weft::internal::topology {

// Indices of the usable ports, the best first: nearest to the GPU with this bus id or, if it is empty, to the cores that
// the calling thread may use. Detects the host at its first call, which takes some 20 ms. If the host is unknown, they are
// in the given order. Thread-safe.
std::vector<int> nearest_ports(std::span<const NicPort> ports, const std::string& gpu, int rank);
// Of the PCI link of an RDMA device (mlx5_0), which its ports share; 0: unknown.
double bus_gbs(const std::string& device);

}  // namespace weft::internal::topology
