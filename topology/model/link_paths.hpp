// link_paths.hpp: the best path over links alone from each node of a graph to each other node of its island. Devices do not
// forward, so a path goes only through cpus, PCI switches and NVSwitches.
#pragma once
#include <vector>

#include "topology/model/graph.hpp"
#include "topology/model/path.hpp"

namespace weft::internal::topology {

// Parallel links of one kind, in one direction.
struct PathEdge {
    int target;  // index in the island
    LinkKind kind;
    PathClass path_class;
    double bandwidth_gbs, latency_us;
    bool assumed;
};

// The connected graph must outlive it. Reentrant.
class LinkPaths {
  public:
    explicit LinkPaths(const Graph& graph);

    // Nodes that links join with this one, ascending: one host, or all hosts of an NVLink domain. The cost of a search
    // depends only on its island.
    const std::vector<int>& island_of(int node) const { return islands_[size_t(island_[size_t(node)])]; }
    const std::vector<PathEdge>& edges(int node) const { return edges_[size_t(node)]; }
    bool has_c2c() const { return has_c2c_; }
    // To every node of the source's island, by index in it. none: a farther path too. `c2c`: at GPUs only over links of
    // NVLink-C2C.
    std::vector<Path> from(int source, PathClass farthest = PathClass::sys, bool c2c = false) const;
    // The nodes of that path, with both ends; empty: there is no path.
    std::vector<int> route(int source, int target, bool c2c = false) const;

  private:
    // How a search reaches a node: the path with the fewest hops over links that are near and wide enough.
    struct ReachedNode {
        int hops = -1;  // not reached
        int previous = -1;
        double latency_us = 0;
        bool assumed = false;
    };
    using Row = std::vector<ReachedNode>;  // of the source and of forwarding nodes, by index in the island
    // The links that a search uses.
    struct PathSearch {
        PathClass worst;
        double bandwidth_gbs;
        bool c2c;
    };
    void find_islands();
    void add_edges();
    void add_ends();
    bool forwards(int node) const;
    bool allows(const PathSearch& search, const std::vector<int>& island, int node, const PathEdge& edge) const;
    Row layers(int source, const PathSearch& search) const;
    ReachedNode reached(const Row& row, int node, const PathSearch& search) const;
    double width_of(int source, double bandwidth_gbs) const;

    const Graph& graph_;
    std::vector<std::vector<int>> islands_;     // their nodes
    std::vector<int> island_, place_;           // of each node: its island, and its index there
    std::vector<std::vector<PathEdge>> edges_;  // of each node
    std::vector<std::vector<PathEdge>> into_;   // of each end, from indices of its island
    bool has_c2c_ = false;
    std::vector<double> widths_;  // bandwidths of edges between forwarding nodes, ascending
};

}  // namespace weft::internal::topology
