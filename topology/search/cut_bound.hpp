// cut_bound.hpp: what no set of rings can exceed, by max-flow over the links of a graph. Whatever way a ring goes, it
// crosses each border between ranks at least once each way, so the narrowest border bounds all rings together. It
// knows nothing of how rings are searched: it judges them.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

// One machine: what links join with each other.
struct MachineGraph {
    const Graph* graph = nullptr;
    std::vector<int> nodes;              // of one island
    std::vector<int> sites;              // of these, those that ranks sit on
    bool outside = false;                // its ports lead to further machines
    PathClass reach = PathClass::sys;    // links of farther classes are not used
    PathClass outward = PathClass::sys;  // the same on the way to ports; it bounds routes, not cuts
};

struct Cut {
    double gbs = 0;           // infinite: one site, and nothing outside
    std::vector<int> inside;  // nodes on the side that has fewer sites
    // "what joins gpu 3 with the rest: pci of 6 GB/s from gpu 3 to cpu 1"
    std::string why;
};

// `unit_gbs`: of each link only whole units count, as channels of that bandwidth use it; 0: all.
Cut narrowest_cut(const MachineGraph& machine_graph, double unit_gbs = 0);

// The islands of the graph: nodes that links join, one host or all hosts of an NVLink domain.
std::vector<std::vector<int>> islands_of(const Graph& graph);

}  // namespace weft::internal::topology
