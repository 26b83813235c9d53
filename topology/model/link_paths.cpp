#include "topology/model/link_paths.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

// The classes of paths over links, nearest first.
constexpr PathClass classes_by_link[] = {PathClass::loc, PathClass::nvl, PathClass::c2c, PathClass::pix,
                                         PathClass::pxb, PathClass::phb, PathClass::sys};

}  // namespace

LinkPaths::LinkPaths(const Graph& graph) : graph_(graph), edges_(graph.nodes().size()) {
    find_islands();
    add_edges();
    add_ends();
}

void LinkPaths::find_islands() {
    // Each node points to one of the same island; the first node points to itself.
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

void LinkPaths::add_edges() {
    const auto add = [&](int source, int target, const Link& link) {
        edges_[size_t(source)].push_back({place_[size_t(target)], link.kind,
                                          class_of(link, graph_.node(source).kind, graph_.node(target).kind),
                                          link.bandwidth_gbs, link.latency_us, link.assumed});
    };
    for (const Link& link : graph_.links()) {
        has_c2c_ = has_c2c_ || link.kind == LinkKind::c2c;
        add(link.source, link.target, link);
        if (link.both_ways) add(link.target, link.source, link);
    }
    // Parallel links add up.
    for (auto& edges : edges_) {
        std::sort(edges.begin(), edges.end(), [](const PathEdge& a, const PathEdge& b) {
            return std::pair(a.target, a.kind) < std::pair(b.target, b.kind);
        });
        size_t kept = 0;
        for (size_t i = 0; i < edges.size(); ++i) {
            if (kept > 0 && edges[kept - 1].target == edges[i].target && edges[kept - 1].kind == edges[i].kind) {
                PathEdge& bundle = edges[kept - 1];
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

bool LinkPaths::forwards(int node) const {
    const NodeKind kind = graph_.node(node).kind;
    return kind != NodeKind::gpu && kind != NodeKind::port;
}

// Ends, which do not forward, are reached last. So a search needs only forwarding nodes, and one round for each of
// their bandwidths.
void LinkPaths::add_ends() {
    into_.resize(edges_.size());
    for (size_t node = 0; node < edges_.size(); ++node) {
        const std::vector<int>& island = island_of(int(node));
        for (const PathEdge& edge : edges_[node]) {
            const int target = island[size_t(edge.target)];
            if (!forwards(target)) {
                into_[size_t(target)].push_back(edge);
                into_[size_t(target)].back().target = place_[node];
            } else if (forwards(int(node))) {
                widths_.push_back(edge.bandwidth_gbs);
            }
        }
    }
    std::sort(widths_.begin(), widths_.end());
    widths_.erase(std::unique(widths_.begin(), widths_.end()), widths_.end());
}

bool LinkPaths::allows(const PathSearch& search, const std::vector<int>& island, int node, const PathEdge& edge) const {
    if (edge.path_class > search.worst || edge.bandwidth_gbs < search.bandwidth_gbs) return false;
    if (!search.c2c || edge.kind == LinkKind::c2c) return true;
    return graph_.node(node).kind != NodeKind::gpu && graph_.node(island[size_t(edge.target)]).kind != NodeKind::gpu;
}

LinkPaths::Row LinkPaths::layers(int source, const PathSearch& search) const {
    const std::vector<int>& island = island_of(source);
    Row row(island.size());
    std::vector<int> layer{place_[size_t(source)]}, next;
    row[size_t(layer[0])].hops = 0;
    for (int hops = 1; !layer.empty(); ++hops, layer.swap(next), next.clear()) {
        for (const int place : layer) {
            const int node = island[size_t(place)];
            const ReachedNode from = row[size_t(place)];
            for (const PathEdge& edge : edges_[size_t(node)]) {
                if (!allows(search, island, node, edge)) continue;
                ReachedNode& target = row[size_t(edge.target)];
                if ((target.hops >= 0 && target.hops < hops) || !forwards(island[size_t(edge.target)])) continue;
                const double latency_us = from.latency_us + edge.latency_us;
                if (target.hops < 0)
                    next.push_back(edge.target);
                else if (target.latency_us <= latency_us)
                    continue;
                target = {hops, place, latency_us, from.assumed || edge.assumed};
            }
        }
    }
    return row;
}

LinkPaths::ReachedNode LinkPaths::reached(const Row& row, int node, const PathSearch& search) const {
    ReachedNode best = row[size_t(place_[size_t(node)])];
    if (best.hops >= 0 || forwards(node)) return best;
    for (const PathEdge& edge : into_[size_t(node)]) {
        const ReachedNode& from = row[size_t(edge.target)];
        if (from.hops < 0 || !allows(search, island_of(node), node, edge)) continue;
        const ReachedNode found{from.hops + 1, edge.target, from.latency_us + edge.latency_us,
                                from.assumed || edge.assumed};
        if (best.hops < 0 || std::tuple(found.hops, found.latency_us) < std::tuple(best.hops, best.latency_us))
            best = found;
    }
    return best;
}

// The least bandwidth of an edge on such a path, except for the edge into its end.
double LinkPaths::width_of(int source, double bandwidth_gbs) const {
    const auto least = std::lower_bound(widths_.begin(), widths_.end(), bandwidth_gbs);
    double width = least == widths_.end() ? std::numeric_limits<double>::infinity() : *least;
    if (forwards(source)) return width;
    for (const PathEdge& edge : edges_[size_t(source)])
        if (edge.bandwidth_gbs >= bandwidth_gbs) width = std::min(width, edge.bandwidth_gbs);
    return width;
}

std::vector<Path> LinkPaths::from(int source, PathClass farthest, bool c2c) const {
    const std::vector<int>& island = island_of(source);
    const size_t begin = size_t(place_[size_t(source)]);
    std::vector<Path> paths(island.size());
    paths[begin] = {PathClass::loc, 0, local_gbs, 0, -1, false};
    // Class by class: a node that is reached for the first time has this class, and its widest path uses only links of
    // this class and nearer ones.
    size_t left = island.size() - 1;
    for (const PathClass worst : classes_by_link) {
        if (worst > farthest || left == 0) break;
        std::vector<double> widest(island.size(), 0);
        std::priority_queue<std::pair<double, int>> queue;
        std::map<double, std::vector<int>> found;  // indices, by the bandwidth of their paths
        queue.push({widest[begin] = std::numeric_limits<double>::infinity(), int(begin)});
        while (!queue.empty()) {
            const auto [width, place] = queue.top();
            queue.pop();
            if (width < widest[size_t(place)]) continue;
            const int node = island[size_t(place)];
            Path& path = paths[size_t(place)];
            if (path.path_class == PathClass::none) {
                path.path_class = worst;
                path.bandwidth_gbs = width;
                found[width_of(source, width)].push_back(place);
                --left;
            }
            if (node != source && !forwards(node)) continue;
            for (const PathEdge& edge : edges_[size_t(node)]) {
                const double through = std::min(width, edge.bandwidth_gbs);
                if (through <= widest[size_t(edge.target)] || !allows({worst, 0, c2c}, island, node, edge)) continue;
                queue.push({widest[size_t(edge.target)] = through, edge.target});
            }
        }
        for (const auto& [width, places] : found) {
            const Row row = layers(source, {worst, width, c2c});
            for (const int place : places) {
                Path& path = paths[size_t(place)];
                const ReachedNode end = reached(row, island[size_t(place)], {worst, path.bandwidth_gbs, c2c});
                path.hops = end.hops;
                path.latency_us = end.latency_us;
                path.assumed = end.assumed;
            }
        }
    }
    return paths;
}

std::vector<int> LinkPaths::route(int source, int target, bool c2c) const {
    if (source == target) return {source};
    if (island_[size_t(source)] != island_[size_t(target)]) return {};
    const Path path = from(source, PathClass::sys, c2c)[size_t(place_[size_t(target)])];
    std::vector<int> nodes;
    if (path.path_class == PathClass::none) return nodes;
    PathSearch search{path.path_class, width_of(source, path.bandwidth_gbs), c2c};
    const Row row = layers(source, search);
    nodes.push_back(target);
    search.bandwidth_gbs = path.bandwidth_gbs;
    for (int place = reached(row, target, search).previous; place >= 0; place = row[size_t(place)].previous)
        nodes.push_back(island_of(source)[size_t(place)]);
    std::reverse(nodes.begin(), nodes.end());
    return nodes;
}

}  // namespace weft::internal::topology
