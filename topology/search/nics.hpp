// nics.hpp: the network port that each rank of a host should use, by the topology of the host.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "topology/model/cpu_mask.hpp"
#include "topology/model/graph.hpp"
#include "topology/model/path.hpp"

namespace weft::internal::topology {

// A port as its driver knows it.
struct NicPort {
    std::string device;  // "mlx5_0"
    int number = 1;
    bool usable = true;
};

// Where a rank runs: its GPU, or the cpus whose cores it may use.
using RankNodes = std::vector<int>;

struct NicChoice {
    // Indices of the usable ports, the best first: nearest, then widest, then with the fewest ranks of this host before.
    // The first carries the rank's traffic. Those after it are for failover.
    std::vector<int> ports;
    std::vector<PathClass> classes;  // of the paths to these ports; none: the graph does not have the port
    int alike = 0;                   // so many of the first ports are equally near and wide
    double bandwidth_gbs = 0;        // of the path to the first; 0: unknown
    PathClass path_class() const { return classes.empty() ? PathClass::none : classes.front(); }
};

// One choice for each rank, in the order of the ranks of the host. Ranks that are equally near to several ports take
// them in turn. A usable port that the graph lacks, because /sys does not show it, comes last. Ports of another host are
// ignored. A pure function: all ranks of a host find the same.
std::vector<NicChoice> choose_nics(const Graph& graph, std::span<const NicPort> ports,
                                   std::span<const RankNodes> ranks);

// The place of a rank, as it knows it by itself.
struct RankPlace {
    std::string gpu = {};  // bus id; empty: it has none
    CpuMask cores = {};    // the hardware threads that it may use
    int rank = 0;          // in the communicator
};

// The usable ports for such a rank, the best first, as choose_nics() has them if each GPU has a rank. Ranks without a GPU
// take equally near ports in turn. If they are bound to cores of one NUMA domain, the order is that of their cores,
// otherwise that of their numbers. So a rank need not know the places of others. A pure function.
std::vector<int> order_of_ports(const Graph& graph, std::span<const NicPort> ports, const RankPlace& place);

// "the nearest of 4 (PIX, 50 GB/s)", "one of 2 equally near, of 4 (SYS, 12.5 GB/s)"
std::string reason_of(const NicChoice& choice);

}  // namespace weft::internal::topology
