#include "topology/paths.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "topology/speeds.hpp"

namespace weft::topology {

namespace {

constexpr const char* names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "PXN", "PHB", "SYS", "NET", "-"};
constexpr int classes_by_link = int(PathClass::sys) + 1;  // those that links alone can have

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

// The ways with the fewest hops over links that are near and wide enough.
struct Paths::Row {
    std::vector<int> hops;  // -1: not reached
    std::vector<double> latency_us;
    std::vector<int> previous;
    std::vector<char> assumed;
};

Paths::Paths(const Graph& graph, PathOptions options)
    : graph_(graph), options_(options), edges_(graph.nodes().size()), ports_(graph.hosts().size()) {
    find_islands();
    add_edges();
    for (const int port : graph.of_kind(NodeKind::port)) ports_[size_t(graph.node(port).host)].push_back(port);
    if (options_.net && graph.hosts().size() > 1) find_arrivals();
}

void Paths::find_islands() {
    // Each node points to one of the same island, the first one of it to itself.
    std::vector<int> first(graph_.nodes().size());
    std::iota(first.begin(), first.end(), 0);
    const auto find = [&](int node) {
        while (first[size_t(node)] != node) node = first[size_t(node)] = first[size_t(first[size_t(node)])];
        return node;
    };
    for (const Link& link : graph_.links()) {
        const int one = find(link.source), other = find(link.target);
        first[size_t(std::max(one, other))] = std::min(one, other);
    }
    island_.resize(first.size());
    place_.resize(first.size());
    for (size_t node = 0; node < first.size(); ++node) {
        const int head = find(int(node));
        if (head == int(node)) {
            island_[node] = int(islands_.size());
            islands_.emplace_back();
        } else {
            island_[node] = island_[size_t(head)];
        }
        auto& island = islands_[size_t(island_[node])];
        place_[node] = int(island.size());
        island.push_back(int(node));
    }
}

void Paths::add_edges() {
    const auto add = [&](int source, int target, const Link& link) {
        edges_[size_t(source)].push_back({place_[size_t(target)], link.kind,
                                          class_of(link, graph_.node(source).kind, graph_.node(target).kind),
                                          link.bandwidth_gbs, link.latency_us, link.assumed});
    };
    for (const Link& link : graph_.links()) {
        add(link.source, link.target, link);
        if (link.both_ways) add(link.target, link.source, link);
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
}

void Paths::find_arrivals() {
    arrival_port_.assign(graph_.nodes().size(), -1);
    arrival_.resize(graph_.nodes().size());
    for (const auto& ports : ports_) {
        for (const int port : ports) {
            const std::vector<Path> row = direct(port);
            const double port_gbs = port_speed(graph_.node(port).port).bandwidth_gbs;
            for (size_t place = 0; place < row.size(); ++place) {
                const size_t node = size_t(island_of(port)[place]);
                if (row[place].path_class == PathClass::none || graph_.node(int(node)).host != graph_.node(port).host)
                    continue;
                Path path = row[place];
                path.bandwidth_gbs = std::min(path.bandwidth_gbs, port_gbs);
                if (arrival_port_[node] >= 0 && !wider(path, arrival_[node])) continue;
                arrival_port_[node] = port;
                arrival_[node] = path;
            }
        }
    }
}

bool Paths::forwards(int node) const {
    const NodeKind kind = graph_.node(node).kind;
    return kind != NodeKind::gpu && kind != NodeKind::port;
}

Paths::Row Paths::layers(int source, PathClass worst, double bandwidth_gbs) const {
    const std::vector<int>& island = island_of(source);
    const size_t places = island.size();
    Row row{std::vector<int>(places, -1), std::vector<double>(places), std::vector<int>(places, -1),
            std::vector<char>(places)};
    std::vector<int> layer{place_[size_t(source)]}, next;
    row.hops[size_t(layer[0])] = 0;
    for (int hops = 1; !layer.empty(); ++hops, layer.swap(next), next.clear()) {
        for (const int place : layer) {
            const int node = island[size_t(place)];
            if (node != source && !forwards(node)) continue;
            for (const Edge& edge : edges_[size_t(node)]) {
                if (edge.path_class > worst || edge.bandwidth_gbs < bandwidth_gbs) continue;
                const size_t target = size_t(edge.target);
                const double latency_us = row.latency_us[size_t(place)] + edge.latency_us;
                if (row.hops[target] < 0) {
                    row.hops[target] = hops;
                    next.push_back(edge.target);
                } else if (row.hops[target] < hops || row.latency_us[target] <= latency_us) {
                    continue;
                }
                row.latency_us[target] = latency_us;
                row.previous[target] = place;
                row.assumed[target] = row.assumed[size_t(place)] || edge.assumed;
            }
        }
    }
    return row;
}

std::vector<Path> Paths::direct(int source) const {
    const std::vector<int>& island = island_of(source);
    const size_t begin = size_t(place_[size_t(source)]);
    std::vector<Path> paths(island.size());
    paths[begin] = {PathClass::loc, 0, local_gbs, 0, -1, false};
    // Class after class: what is reached for the first time is of this class, and its widest way lies among the links
    // of this and nearer ones.
    size_t left = island.size() - 1;
    for (int level = 0; level < classes_by_link && left > 0; ++level) {
        const PathClass worst = PathClass(level);
        std::vector<double> widest(island.size(), 0);
        std::priority_queue<std::pair<double, int>> queue;
        std::set<double> widths;
        queue.push({widest[begin] = std::numeric_limits<double>::infinity(), int(begin)});
        while (!queue.empty()) {
            const auto [width, place] = queue.top();
            queue.pop();
            if (width < widest[size_t(place)]) continue;
            Path& path = paths[size_t(place)];
            if (path.path_class == PathClass::none) {
                path.path_class = worst;
                path.bandwidth_gbs = width;
                widths.insert(width);
                --left;
            }
            const int node = island[size_t(place)];
            if (node != source && !forwards(node)) continue;
            for (const Edge& edge : edges_[size_t(node)]) {
                const double through = std::min(width, edge.bandwidth_gbs);
                if (edge.path_class > worst || through <= widest[size_t(edge.target)]) continue;
                queue.push({widest[size_t(edge.target)] = through, edge.target});
            }
        }
        for (const double width : widths) {
            const Row row = layers(source, worst, width);
            for (size_t place = 0; place < paths.size(); ++place) {
                Path& path = paths[place];
                if (place == begin || path.path_class != worst || path.bandwidth_gbs != width) continue;
                path.hops = row.hops[place];
                path.latency_us = row.latency_us[place];
                path.assumed = row.assumed[place] != 0;
            }
        }
    }
    return paths;
}

void Paths::add_nvb(int source, std::vector<Path>& row) const {
    const std::vector<int>& island = island_of(source);
    const auto is_nvlink = [&](const Edge& edge) {
        return edge.kind == LinkKind::nvlink && graph_.node(island[size_t(edge.target)]).kind == NodeKind::gpu;
    };
    if (graph_.node(source).kind != NodeKind::gpu) return;
    for (const Edge& first : edges_[size_t(source)]) {
        if (!is_nvlink(first)) continue;
        const int through = island[size_t(first.target)];
        for (const Edge& second : edges_[size_t(through)]) {
            const int target = island[size_t(second.target)];
            if (!is_nvlink(second) || target == source) continue;
            const Path path{PathClass::nvb,
                            2,
                            std::min(first.bandwidth_gbs, second.bandwidth_gbs),
                            first.latency_us + second.latency_us,
                            through,
                            first.assumed || second.assumed};
            if (better(path, row[size_t(target)])) row[size_t(target)] = path;
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
    const std::vector<int>& island = island_of(source);
    const std::vector<Path> first = direct(source);
    for (size_t relay = 0; relay < first.size(); ++relay) {
        const int gpu = island[relay];
        if (graph_.node(gpu).kind != NodeKind::gpu || graph_.node(gpu).host != from.host || gpu == source ||
            first[relay].path_class > first_worst)
            continue;
        const std::vector<Path> second = direct(gpu);
        for (size_t place = 0; place < second.size(); ++place) {
            const int target = island[place];
            if (graph_.node(target).kind != target_kind || second[place].path_class > second_worst || target == gpu)
                continue;
            const Path path = joined(first[relay], second[place], PathClass::pxn, gpu);
            if (better(path, row[size_t(target)])) row[size_t(target)] = path;
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
    std::vector<Path> row(graph_.nodes().size());
    const std::vector<Path> near = direct(source);
    for (size_t place = 0; place < near.size(); ++place) row[size_t(island_of(source)[place])] = near[place];
    if (options_.nvb) add_nvb(source, row);
    if (options_.pxn) add_pxn(source, row);
    if (options_.net) add_net(source, row);
    return row;
}

std::vector<int> Paths::direct_route(int source, int target) const {
    if (source == target) return {source};
    if (island_[size_t(source)] != island_[size_t(target)]) return {};
    const Path path = direct(source)[size_t(place_[size_t(target)])];
    std::vector<int> nodes;
    if (path.path_class == PathClass::none) return nodes;
    const Row row = layers(source, path.path_class, path.bandwidth_gbs);
    for (int place = place_[size_t(target)]; place >= 0; place = row.previous[size_t(place)])
        nodes.push_back(island_of(source)[size_t(place)]);
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
