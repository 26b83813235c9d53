// packing.hpp: rings side by side over the links of one machine: so many rings of so much bandwidth each that no link
// has to carry more than it can. Each ring is the cheapest at prices which rise where rings contend, until none do.
// Source: McMurchie and Ebeling, "PathFinder: a negotiation-based performance-driven router for FPGAs", 1995.
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/routing_graph.hpp"

namespace weft::internal::topology {

// A ring through the sites of one machine; or, where it leads out, a chain from one port to another.
struct PackedRing {
    std::vector<int> order;  // places in RoutingGraph::sites()
    // Arcs from each of `order` to the next, from the last to the first again; of a chain from its entry to the first,
    // then so, then from the last to its exit.
    std::vector<std::vector<int>> routes;
    int entry = -1, exit = -1;                                    // ports (nodes)
    PathClass within = PathClass::loc, outward = PathClass::loc;  // farthest
};

struct PackingRequest {
    double unit_gbs = 0;  // of each ring
    int rings = 1;
    bool pairs = false;      // each second ring is the one before, the other way round
    bool one_port = false;   // a ring enters and leaves by the same port
    int64_t steps_most = 0;  // of the counter given
    // Orders that are to be kept, with their ports, of each ring; empty: they are searched.
    std::vector<PackedRing> given = {};
};

struct Packing {
    double ring_gbs = 0;  // what each ring has: `unit_gbs` or more, if no link is overcharged. 0: no ring exists
    std::vector<PackedRing> rings;  // the best that was met
    int narrowest = -1;             // the arc that leaves no more
    std::vector<int> uses;          // of each arc
};

// What trees over these chains reduce each, so that no link is overcharged. They climb each way up and down; what a
// machine exchanges with others goes through a chain's entry twice, for it has, in both trees of a pair together, two
// neighbours above and two below.
double tree_gbs(const RoutingGraph& fabric, const std::vector<PackedRing>& chains);

Packing pack(const RoutingGraph& fabric, const PackingRequest& request, int64_t& steps);

}  // namespace weft::internal::topology
