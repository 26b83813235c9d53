#include "topology/paths.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "topology/speeds.hpp"

namespace weft::topology {

namespace {

constexpr const char* names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "-"};
constexpr int classes_by_link = int(PathClass::sys) + 1;  // those that links alone can have

PathClass class_of(const Link& link, NodeKind one, NodeKind other) {
    switch (link.kind) {
        case LinkKind::nvlink: return PathClass::nvl;
        case LinkKind::c2c: return PathClass::c2c;
        case LinkKind::sys: return PathClass::sys;
        case LinkKind::net: return PathClass::loc;
        case LinkKind::local:
        case LinkKind::pci: break;
    }
    if (one == NodeKind::pci && other == NodeKind::pci) return PathClass::pxb;
    if (link.kind == LinkKind::local) return PathClass::loc;
    return one == NodeKind::cpu || other == NodeKind::cpu ? PathClass::phb : PathClass::pix;
}

bool better(const Path& a, const Path& b) {
    return std::tuple(a.path_class, -a.bandwidth_gbs, a.hops, a.latency_us) <
           std::tuple(b.path_class, -b.bandwidth_gbs, b.hops, b.latency_us);
}

// Of ports what counts is what passes through them.
bool wider(const Path& a, const Path& b) {
    return std::tuple(-a.bandwidth_gbs, a.path_class, a.hops, a.latency_us) <
           std::tuple(-b.bandwidth_gbs, b.path_class, b.hops, b.latency_us);
}

Path joined(const Path& a, const Path& b, PathClass path_class, int through) {
    return {path_class, a.hops + b.hops,       std::min(a.bandwidth_gbs, b.bandwidth_gbs), a.latency_us + b.latency_us,
            through,    a.assumed || b.assumed};
}

}  // namespace

const char* name_of(PathClass path_class) { return names[size_t(path_class)]; }

PathClass path_class_named(std::string_view name) {
    const auto found = std::find(std::begin(names), std::end(names) - 1, name);
    return PathClass(found - std::begin(names));
}

// The ways with the fewest hops over links that are near and wide enough.
struct Paths::Row {
    std::vector<int> hops;  // -1: not reached
    std::vector<double> latency_us;
    std::vector<int> previous;
    std::vector<char> assumed;
};

Paths::Paths(const Graph& graph, PathOptions options)
    : graph_(graph), options_(options), edges_(graph.nodes().size()), ports_(graph.hosts().size()) {
    for (const Link& link : graph.links()) {
        add_edge(link.source, link.target, link);
        if (link.both_ways) add_edge(link.target, link.source, link);
    }
    // Parallel links carry what they carry together.
    for (auto& edges : edges_) {
        std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
            return std::pair(a.target, a.kind) < std::pair(b.target, b.kind);
        });
        size_t kept = 0;
        for (size_t i = 0; i < edges.size(); ++i) {
            if (kept > 0 && edges[kept - 1].target == edges[i].target && edges[kept - 1].kind == edges[i].kind) {
                Edge& bundle = edges[kept - 1];
                bundle.bandwidth_gbs += edges[i].bandwidth_gbs;
                bundle.latency_us = std::min(bundle.latency_us, edges[i].latency_us);
                bundle.assumed |= edges[i].assumed;
            } else {
                edges[kept++] = edges[i];
            }
        }
        edges.erase(edges.begin() + std::ptrdiff_t(kept), edges.end());
    }
    for (int node = 0; node < int(graph.nodes().size()); ++node)
        if (graph.node(node).kind == NodeKind::port) ports_[size_t(graph.node(node).host)].push_back(node);
    if (!options_.net || graph.hosts().size() < 2) return;
    arrival_port_.assign(graph.nodes().size(), -1);
    arrival_.resize(graph.nodes().size());
    for (const auto& ports : ports_) {
        for (const int port : ports) {
            const std::vector<Path> row = direct(port);
            const double port_gbs = port_speed(graph.node(port).port).bandwidth_gbs;
            for (size_t node = 0; node < row.size(); ++node) {
                if (row[node].path_class == PathClass::none || graph.node(int(node)).host != graph.node(port).host)
                    continue;
                Path path = row[node];
                path.bandwidth_gbs = std::min(path.bandwidth_gbs, port_gbs);
                if (arrival_port_[node] >= 0 && !wider(path, arrival_[node])) continue;
                arrival_port_[node] = port;
                arrival_[node] = path;
            }
        }
    }
}

void Paths::add_edge(int source, int target, const Link& link) {
    edges_[size_t(source)].push_back({target, link.kind,
                                      class_of(link, graph_.node(source).kind, graph_.node(target).kind),
                                      link.bandwidth_gbs, link.latency_us, link.assumed});
}

bool Paths::forwards(int node) const {
    const NodeKind kind = graph_.node(node).kind;
    return kind != NodeKind::gpu && kind != NodeKind::port;
}

Paths::Row Paths::layers(int source, PathClass worst, double bandwidth_gbs) const {
    const size_t nodes = edges_.size();
    Row row{std::vector<int>(nodes, -1), std::vector<double>(nodes), std::vector<int>(nodes, -1),
            std::vector<char>(nodes)};
    std::vector<int> layer{source}, next;
    row.hops[size_t(source)] = 0;
    for (int hops = 1; !layer.empty(); ++hops, layer.swap(next), next.clear()) {
        for (const int node : layer) {
            if (node != source && !forwards(node)) continue;
            for (const Edge& edge : edges_[size_t(node)]) {
                if (edge.path_class > worst || edge.bandwidth_gbs < bandwidth_gbs) continue;
                const size_t target = size_t(edge.target);
                const double latency_us = row.latency_us[size_t(node)] + edge.latency_us;
                if (row.hops[target] < 0) {
                    row.hops[target] = hops;
                    next.push_back(edge.target);
                } else if (row.hops[target] < hops || row.latency_us[target] <= latency_us) {
                    continue;
                }
                row.latency_us[target] = latency_us;
                row.previous[target] = node;
                row.assumed[target] = row.assumed[size_t(node)] || edge.assumed;
            }
        }
    }
    return row;
}

std::vector<Path> Paths::direct(int source) const {
    const size_t nodes = edges_.size();
    std::vector<Path> paths(nodes);
    paths[size_t(source)] = {PathClass::loc, 0, local_gbs, 0, -1, false};
    // Class after class: what is reached for the first time is of this class, and its widest way lies among the links
    // of this and nearer ones.
    for (int level = 0; level < classes_by_link; ++level) {
        const PathClass worst = PathClass(level);
        std::vector<double> widest(nodes, 0);
        std::priority_queue<std::pair<double, int>> queue;
        std::set<double> widths;
        queue.push({widest[size_t(source)] = std::numeric_limits<double>::infinity(), source});
        while (!queue.empty()) {
            const auto [width, node] = queue.top();
            queue.pop();
            if (width < widest[size_t(node)]) continue;
            Path& path = paths[size_t(node)];
            if (path.path_class == PathClass::none) {
                path.path_class = worst;
                path.bandwidth_gbs = width;
                widths.insert(width);
            }
            if (node != source && !forwards(node)) continue;
            for (const Edge& edge : edges_[size_t(node)]) {
                const double through = std::min(width, edge.bandwidth_gbs);
                if (edge.path_class > worst || through <= widest[size_t(edge.target)]) continue;
                queue.push({widest[size_t(edge.target)] = through, edge.target});
            }
        }
        for (const double width : widths) {
            const Row row = layers(source, worst, width);
            for (size_t node = 0; node < nodes; ++node) {
                Path& path = paths[node];
                if (int(node) == source || path.path_class != worst || path.bandwidth_gbs != width) continue;
                path.hops = row.hops[node];
                path.latency_us = row.latency_us[node];
                path.assumed = row.assumed[node] != 0;
            }
        }
    }
    return paths;
}

void Paths::add_nvb(int source, std::vector<Path>& row) const {
    const auto is_nvlink = [&](const Edge& edge) {
        return edge.kind == LinkKind::nvlink && graph_.node(edge.target).kind == NodeKind::gpu;
    };
    if (graph_.node(source).kind != NodeKind::gpu) return;
    for (const Edge& first : edges_[size_t(source)]) {
        if (!is_nvlink(first)) continue;
        for (const Edge& second : edges_[size_t(first.target)]) {
            if (!is_nvlink(second) || second.target == source) continue;
            const Path path{PathClass::nvb,
                            2,
                            std::min(first.bandwidth_gbs, second.bandwidth_gbs),
                            first.latency_us + second.latency_us,
                            first.target,
                            first.assumed || second.assumed};
            if (better(path, row[size_t(second.target)])) row[size_t(second.target)] = path;
        }
    }
}

void Paths::add_pxn(int source, std::vector<Path>& row) const {
    const Node& from = graph_.node(source);
    if (from.kind != NodeKind::gpu && from.kind != NodeKind::port) return;
    const bool out = from.kind == NodeKind::gpu;
    const PathClass first_worst = out ? PathClass::nvl : PathClass::pxb;
    const PathClass second_worst = out ? PathClass::pxb : PathClass::nvl;
    const NodeKind target_kind = out ? NodeKind::port : NodeKind::gpu;
    const std::vector<Path> first = direct(source);
    for (size_t gpu = 0; gpu < first.size(); ++gpu) {
        const Node& relay = graph_.node(int(gpu));
        if (relay.kind != NodeKind::gpu || relay.host != from.host || int(gpu) == source ||
            first[gpu].path_class > first_worst)
            continue;
        const std::vector<Path> second = direct(int(gpu));
        for (size_t target = 0; target < second.size(); ++target) {
            if (graph_.node(int(target)).kind != target_kind || second[target].path_class > second_worst ||
                target == gpu)
                continue;
            const Path path = joined(first[gpu], second[target], PathClass::pxn, int(gpu));
            if (better(path, row[target])) row[target] = path;
        }
    }
}

int Paths::port_for(int source, const std::vector<Path>& row) const {
    const int host = graph_.node(source).host;
    int best = -1;
    if (host < 0) return best;
    for (const int port : ports_[size_t(host)]) {
        if (row[size_t(port)].path_class == PathClass::none) continue;
        if (best < 0 || wider(row[size_t(port)], row[size_t(best)])) best = port;
    }
    return graph_.node(source).kind == NodeKind::port ? source : best;
}

void Paths::add_net(int source, std::vector<Path>& row) const {
    const int port = port_for(source, row);
    if (arrival_.empty() || port < 0) return;
    const int host = graph_.node(source).host;
    const Port& leaving = graph_.node(port).port;
    Path out = row[size_t(port)];
    const Speed speed = port_speed(leaving);
    out.bandwidth_gbs = std::min(out.bandwidth_gbs, speed.bandwidth_gbs);
    out.assumed |= speed.assumed;
    for (size_t node = 0; node < row.size(); ++node) {
        if (row[node].path_class != PathClass::none || arrival_port_[node] < 0 || graph_.node(int(node)).host == host)
            continue;
        const Port& arriving = graph_.node(arrival_port_[node]).port;
        row[node] = joined(out, arrival_[node], PathClass::net, -1);
        row[node].hops += 1;
        row[node].latency_us += std::max(network_latency_us(leaving), network_latency_us(arriving));
        row[node].assumed |= port_speed(arriving).assumed;
    }
}

std::vector<Path> Paths::from(int source) const {
    std::vector<Path> row = direct(source);
    if (options_.nvb) add_nvb(source, row);
    if (options_.pxn) add_pxn(source, row);
    if (options_.net) add_net(source, row);
    return row;
}

std::vector<int> Paths::direct_route(int source, int target) const {
    const Path path = direct(source)[size_t(target)];
    std::vector<int> nodes;
    if (source == target) return {source};
    if (path.path_class == PathClass::none) return nodes;
    const Row row = layers(source, path.path_class, path.bandwidth_gbs);
    for (int node = target; node >= 0; node = row.previous[size_t(node)]) nodes.push_back(node);
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
}

std::vector<int> Paths::route(int source, int target) const {
    const std::vector<Path> row = from(source);
    const Path& path = row[size_t(target)];
    if (path.path_class == PathClass::none) return {};
    std::vector<int> nodes;
    const auto append = [&](const std::vector<int>& more) {
        for (const int node : more)
            if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    };
    if (path.path_class == PathClass::net) {
        const int arrival = arrival_port_[size_t(target)];
        const int port = port_for(source, row);
        append(row[size_t(port)].through < 0 ? direct_route(source, port) : route(source, port));
        append(direct_route(arrival, target));
    } else if (path.path_class == PathClass::nvb) {
        nodes = {source, path.through, target};  // not through a switch, where there is one, too
    } else if (path.path_class == PathClass::pxn) {
        append(direct_route(source, path.through));
        append(direct_route(path.through, target));
    } else {
        append(direct_route(source, target));
    }
    return nodes;
}

}  // namespace weft::topology
