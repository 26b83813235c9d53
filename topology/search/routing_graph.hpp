// routing_graph.hpp: a machine as channels use it: arcs, which are links one way, parallel ones as one; and the cheapest
// routes over them between sites, and from sites out of the machine, at prices that the caller sets.
// Devices do not forward, except a GPU from NVLink to NVLink within a machine (NVB) and between NVLink and PCI on the
// way out and in (PXN).
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/cut_bound.hpp"

namespace weft::internal::topology {

struct Arc {
    int source = -1, target = -1;  // nodes
    LinkKind kind = LinkKind::pci;
    PathClass path_class = PathClass::loc;
    double gbs = 0;  // 0: its way back alone exists
};

struct PricedRoute {
    double price = 0;  // infinite: there is none
    std::vector<int> arcs;
    PathClass path_class = PathClass::loc;
};

enum class RouteScope : uint8_t { within = 1, leaving = 2, arriving = 4 };

// Reentrant. The machine graph's reach binds routes within the machine; those out of it may go by any link.
class RoutingGraph {
  public:
    explicit RoutingGraph(const MachineGraph& machine_graph);
    const Graph& graph() const { return *machine_graph_.graph; }
    const std::vector<Arc>& arcs() const { return arcs_; }  // [i ^ 1] is the way back of [i]
    // By host, index and NUMA domain.
    const std::vector<int>& sites() const { return sites_; }
    const std::vector<int>& ports() const { return ports_; }  // nodes; those that lead out
    bool symmetric() const { return symmetric_; }             // every link carries as much back
    // From a site to all sites, and behind them to the outside; or, where `from` is the number of sites, from outside.
    // `prices`: of each arc, infinite: not to be used. `port`: the only one to be passed, -1: any. Adds what it looked
    // at to `steps`.
    std::vector<PricedRoute> routes(int from, RouteScope scope, const std::vector<double>& prices, int port,
                                    int64_t& steps) const;
    // What an arc costs that is not scarce: far classes cost more than many near hops.
    double price_of(int arc) const;

  private:
    struct RouteEdge {
        int target;  // vertex
        int arc;     // -1: none is used
        uint8_t scopes;
    };
    int vertex_of(int node) const { return place_[size_t(node)]; }
    int outside() const { return int(machine_graph_.nodes.size()); }
    bool forwards(int vertex) const;
    void add_arcs();
    void add_edges();
    void join(int source, int target, int arc, int scopes) {
        edges_[size_t(source)].push_back({target, arc, uint8_t(scopes)});
    }
    PathClass class_of_route(const std::vector<int>& arcs, bool relayed, RouteScope scope) const;

    MachineGraph machine_graph_;
    std::vector<int> sites_, ports_;
    std::vector<int> place_;  // of each node among the machine graph's, -1: not here
    std::vector<Arc> arcs_;
    std::vector<std::vector<RouteEdge>> edges_;  // of the vertices: nodes, the outside, then relays
    bool symmetric_ = true;
};

}  // namespace weft::internal::topology
