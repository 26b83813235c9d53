// cut_bound.hpp: the upper bound for any set of rings, by max-flow over the links of a graph. Every ring crosses each
// border between ranks at least once in each direction, so the narrowest border bounds all rings together. The bound is
// independent of the search, so that it can judge the search.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

// One machine: the nodes that links join.
struct MachineGraph {
    const Graph* graph = nullptr;
    std::vector<int> nodes;              // of one island
    std::vector<int> sites;              // of these, the nodes with ranks
    bool outside = false;                // its ports lead to other machines
    PathClass reach = PathClass::sys;    // links of farther classes are not used
    PathClass outward = PathClass::sys;  // the same for paths to ports; limits routes, not cuts
};

struct Cut {
    double gbs = 0;           // infinite: there is one site and no outside
    std::vector<int> inside;  // nodes on the side with fewer sites
    // "the links that join gpu 3 to the rest: pci of 6 GB/s from gpu 3 to cpu 1"
    std::string why;
};

// `unit_gbs`: only whole units of each link count, because channels have that bandwidth; 0: everything.
Cut narrowest_cut(const MachineGraph& machine_graph, double unit_gbs = 0);

// The islands of the graph: nodes that links join, one host or all hosts of an NVLink domain.
std::vector<std::vector<int>> islands_of(const Graph& graph);

}  // namespace weft::internal::topology
