// routing_graph.hpp: a machine as the channel search sees it. Arcs are links in one direction, parallel ones together.
// A search finds the cheapest routes between sites, and from sites out of the machine, at the caller's prices.
// Devices do not forward, with two exceptions. A GPU forwards from NVLink to NVLink within a machine (NVB), and between
// NVLink and PCI at the border of the machine (PXN).
#pragma once
#include <cstdint>
#include <vector>

#include "topology/search/cut_bound.hpp"

namespace weft::internal::topology {

struct Arc {
    int source = -1, target = -1;  // nodes
    LinkKind kind = LinkKind::pci;
    PathClass path_class = PathClass::loc;
    double gbs = 0;  // 0: only the opposite direction exists
};

struct PricedRoute {
    double price = 0;  // infinite: there is none
    std::vector<int> arcs;
    PathClass path_class = PathClass::loc;
};

enum class RouteScope : uint8_t { within = 1, leaving = 2, arriving = 4 };

// Reentrant. The reach of the machine graph limits routes within the machine; routes out of it may use any link.
class RoutingGraph {
  public:
    explicit RoutingGraph(const MachineGraph& machine_graph);
    const Graph& graph() const { return *machine_graph_.graph; }
    const std::vector<Arc>& arcs() const { return arcs_; }  // [i ^ 1] is the opposite direction of [i]
    // By host, index and NUMA domain.
    const std::vector<int>& sites() const { return sites_; }
    const std::vector<int>& ports() const { return ports_; }  // nodes that lead out of the machine
    bool symmetric() const { return symmetric_; }             // every link has the same bandwidth in both directions
    // From a site to all sites, and then to the outside; or from the outside, if `from` is the number of sites.
    // `prices`: of each arc; infinite forbids it. `port`: the only allowed one, -1: any. Adds its work to `steps`.
    std::vector<PricedRoute> routes(int from, RouteScope scope, const std::vector<double>& prices, int port,
                                    int64_t& steps) const;
    // The price of an arc without contention: one far class costs more than many near hops.
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
    std::vector<int> place_;  // of each node: its index in the machine graph, -1: it is not in it
    std::vector<Arc> arcs_;
    std::vector<std::vector<RouteEdge>> edges_;  // of the vertices: nodes, the outside, then relays
    bool symmetric_ = true;
};

}  // namespace weft::internal::topology
