// packing.hpp: finds rings over the links of one machine so that no link carries more than its bandwidth. Each ring is
// the cheapest one at prices that rise where rings contend, until no ring does.
// Source: McMurchie and Ebeling, "PathFinder: a negotiation-based performance-driven router for FPGAs", 1995.
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/routing_graph.hpp"

namespace weft::internal::topology {

// A ring through the sites of one machine. If it leaves the machine: a chain from one port to another.
struct PackedRing {
    std::vector<int> order;  // indices into RoutingGraph::sites()
    // Arcs from each of `order` to the next, and from the last to the first. A chain has arcs from its entry to the
    // first, then the same, then from the last to its exit.
    std::vector<std::vector<int>> routes;
    int entry = -1, exit = -1;                                    // ports (nodes)
    PathClass within = PathClass::loc, outward = PathClass::loc;  // farthest
};

struct PackingRequest {
    double unit_gbs = 0;  // of each ring
    int rings = 1;
    bool pairs = false;      // every second ring is the reverse of the one before
    bool one_port = false;   // a ring enters and leaves by the same port
    int64_t steps_most = 0;  // upper limit of the counter
    // Orders to keep, with their ports, for each ring; empty: they are searched.
    std::vector<PackedRing> given = {};
};

struct Packing {
    double ring_gbs = 0;  // bandwidth of each ring: `unit_gbs` or more, if no link is overloaded; 0: no ring exists
    std::vector<PackedRing> rings;  // the best result
    int narrowest = -1;             // the arc that limits the bandwidth
    std::vector<int> uses;          // of each arc
};

// The bandwidth of each tree over these chains without overload of a link. A tree uses each arc in both directions. The
// traffic with other machines passes the entry of a chain twice, because in both trees of a pair together it has two
// children and two parents.
double tree_gbs(const RoutingGraph& fabric, const std::vector<PackedRing>& chains);

Packing pack(const RoutingGraph& fabric, const PackingRequest& request, int64_t& steps);

}  // namespace weft::internal::topology
