#include "topology/search/routing_graph.hpp"

#include <algorithm>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

// Price of a forwarding GPU: above some PCI switches, below a host bridge. Forwarding of outgoing data is preferred.
constexpr double relay_price = 3, arriving_relay_price = 4;

constexpr int within = int(RouteScope::within), leaving = int(RouteScope::leaving),
              arriving = int(RouteScope::arriving);

}  // namespace

RoutingGraph::RoutingGraph(const MachineGraph& machine_graph)
    : machine_graph_(machine_graph), sites_(machine_graph.sites), place_(machine_graph.graph->nodes().size(), -1) {
    for (size_t i = 0; i < machine_graph_.nodes.size(); ++i) place_[size_t(machine_graph_.nodes[i])] = int(i);
    std::sort(sites_.begin(), sites_.end(), [this](int one, int other) {
        const Node &a = graph().node(one), &b = graph().node(other);
        return std::tuple(a.host, a.kind, a.gpu.dev, a.cpu.numaid, one) <
               std::tuple(b.host, b.kind, b.gpu.dev, b.cpu.numaid, other);
    });
    if (machine_graph_.outside) {
        for (const int node : machine_graph_.nodes)
            if (graph().node(node).kind == NodeKind::port) ports_.push_back(node);
        std::sort(ports_.begin(), ports_.end(), [this](int one, int other) {
            const Node &a = graph().node(one), &b = graph().node(other);
            return std::tuple(a.host, a.port.dev, one) < std::tuple(b.host, b.port.dev, other);
        });
    }
    add_arcs();
    add_edges();
}

void RoutingGraph::add_arcs() {
    std::map<std::tuple<int, int, LinkKind>, size_t> found;
    for (const Link& link : graph().links()) {
        if (vertex_of(link.source) < 0 || vertex_of(link.target) < 0) continue;
        const auto [source, target] = std::minmax(link.source, link.target);
        const auto [place, added] = found.try_emplace({source, target, link.kind}, arcs_.size());
        if (added) {
            const PathClass path_class = class_of(link, graph().node(source).kind, graph().node(target).kind);
            arcs_.push_back({source, target, link.kind, path_class, 0});
            arcs_.push_back({target, source, link.kind, path_class, 0});
        }
        const size_t out = place->second + (link.source == source ? 0 : 1);
        arcs_[out].gbs += link.bandwidth_gbs;
        if (link.both_ways) arcs_[out ^ 1].gbs += link.bandwidth_gbs;
    }
    for (size_t i = 0; i < arcs_.size(); i += 2) symmetric_ &= arcs_[i].gbs == arcs_[i + 1].gbs;
}

void RoutingGraph::add_edges() {
    edges_.resize(machine_graph_.nodes.size() + 1);
    const auto is_gpu = [&](int node) { return graph().node(node).kind == NodeKind::gpu; };
    // For each GPU with NVLinks: its vertices as a relay between GPUs, out of the machine and into it.
    struct Relays {
        int between = -1, out = -1, in = -1;
    };
    std::map<int, Relays> relays;
    const auto add_vertex = [&] {
        edges_.emplace_back();
        return int(edges_.size()) - 1;
    };
    for (const Arc& arc : arcs_) {
        if (arc.kind != LinkKind::nvlink || !is_gpu(arc.target) || relays.count(arc.target) > 0) continue;
        Relays& its = relays[arc.target];
        if (machine_graph_.reach >= PathClass::nvb) its.between = add_vertex();
        if (machine_graph_.outside && machine_graph_.outward >= PathClass::pxn) {
            its.out = add_vertex();
            its.in = add_vertex();
        }
    }
    for (size_t i = 0; i < arcs_.size(); ++i) {
        const Arc& arc = arcs_[i];
        if (arc.gbs <= 0) continue;
        const int source = vertex_of(arc.source), target = vertex_of(arc.target), index = int(i);
        int scopes = arc.path_class <= machine_graph_.outward ? leaving | arriving : 0;
        if (arc.path_class <= machine_graph_.reach && arc.kind != LinkKind::net) scopes |= within;
        join(source, target, index, scopes);
        const auto from = relays.find(arc.source), to = relays.find(arc.target);
        if (arc.kind == LinkKind::nvlink) {
            if (is_gpu(arc.source) && is_gpu(arc.target) && machine_graph_.reach >= PathClass::nvb) {
                join(source, to->second.between, index, within);
                join(from->second.between, target, index, within);
            }
            if (to != relays.end() && to->second.out >= 0) join(source, to->second.out, index, leaving);
            if (from != relays.end() && from->second.in >= 0) join(from->second.in, target, index, arriving);
        } else if (arc.kind == LinkKind::pci) {
            if (from != relays.end() && from->second.out >= 0) join(from->second.out, target, index, leaving);
            if (to != relays.end() && to->second.in >= 0) join(source, to->second.in, index, arriving);
        }
    }
    for (const int port : ports_) {
        join(vertex_of(port), outside(), -1, leaving);
        join(outside(), vertex_of(port), -1, arriving);
    }
}

bool RoutingGraph::forwards(int vertex) const {
    if (vertex >= outside()) return vertex > outside();
    return graph().node(machine_graph_.nodes[size_t(vertex)]).kind != NodeKind::gpu;
}

double RoutingGraph::price_of(int arc) const {
    switch (arcs_[size_t(arc)].path_class) {
        case PathClass::loc: return 0.1;
        case PathClass::nvl: return 1;
        case PathClass::c2c: return 1.5;
        case PathClass::pix: return 2;
        case PathClass::pxb: return 2.5;
        case PathClass::phb: return 8;
        default: return 32;
    }
}

PathClass RoutingGraph::class_of_route(const std::vector<int>& arcs, bool relayed, RouteScope scope) const {
    PathClass farthest = PathClass::loc;
    for (const int arc : arcs) farthest = std::max(farthest, arcs_[size_t(arc)].path_class);
    if (!relayed) {
        if (scope == RouteScope::within || farthest != PathClass::phb) return farthest;
        const int of_gpu = scope == RouteScope::leaving ? arcs.front() : arcs.back();
        return arcs_[size_t(of_gpu)].kind == LinkKind::c2c ? PathClass::p2c : farthest;
    }
    return std::max(farthest, scope == RouteScope::within ? PathClass::nvb : PathClass::pxn);
}

std::vector<PricedRoute> RoutingGraph::routes(int from, RouteScope scope, const std::vector<double>& prices, int port,
                                              int64_t& steps) const {
    const bool arrives = from == int(sites_.size());
    const int begin = arrives ? outside() : vertex_of(sites_[size_t(from)]);
    struct VisitedVertex {
        double price = infinite;
        int vertex = -1, arc = -1;
    };
    std::vector<VisitedVertex> reached(edges_.size());
    std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> queue;
    queue.push({reached[size_t(begin)].price = 0, begin});
    while (!queue.empty()) {
        const auto [price, vertex] = queue.top();
        queue.pop();
        if (price > reached[size_t(vertex)].price || (vertex != begin && !forwards(vertex))) continue;
        for (const RouteEdge& edge : edges_[size_t(vertex)]) {
            ++steps;
            if (!(edge.scopes & uint8_t(scope))) continue;
            if (edge.arc < 0 && port >= 0 && (scope == RouteScope::leaving ? vertex : edge.target) != vertex_of(port))
                continue;
            double further = price;
            if (edge.arc >= 0) further += prices[size_t(edge.arc)];
            if (edge.target > outside()) further += scope == RouteScope::arriving ? arriving_relay_price : relay_price;
            if (further >= reached[size_t(edge.target)].price) continue;
            reached[size_t(edge.target)] = {further, vertex, edge.arc};
            queue.push({further, edge.target});
        }
    }
    std::vector<PricedRoute> routes(sites_.size() + 1);
    for (size_t i = 0; i < routes.size(); ++i) {
        const int end = i < sites_.size() ? vertex_of(sites_[i]) : outside();
        PricedRoute& route = routes[i];
        route.price = reached[size_t(end)].price;
        if (route.price == infinite) continue;
        bool relayed = false;
        for (int vertex = end; vertex != begin; vertex = reached[size_t(vertex)].vertex) {
            if (reached[size_t(vertex)].arc >= 0) route.arcs.push_back(reached[size_t(vertex)].arc);
            relayed |= vertex > outside();
        }
        std::reverse(route.arcs.begin(), route.arcs.end());
        route.path_class = class_of_route(route.arcs, relayed, scope);
    }
    return routes;
}

}  // namespace weft::internal::topology
