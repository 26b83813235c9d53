#include "topology/search/cut_bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

constexpr double least_gbs = 1e-9;  // GB/s that count as 0, because of rounding
constexpr size_t told_most = 6;     // links and sites in one sentence

// Dinic's max-flow. One node beside those of the machine graph is the outside.
class MaxFlow {
  public:
    MaxFlow(const MachineGraph& machine_graph, double unit_gbs)
        : graph_(*machine_graph.graph), edges_(machine_graph.nodes.size() + 1) {
        std::vector<int> place(graph_.nodes().size(), -1);
        for (size_t i = 0; i < machine_graph.nodes.size(); ++i) place[size_t(machine_graph.nodes[i])] = int(i);
        // Parallel links add up.
        std::map<std::tuple<int, int, LinkKind>, double> gbs;
        for (const Link& link : graph_.links()) {
            const int source = place[size_t(link.source)], target = place[size_t(link.target)];
            if (source < 0 || target < 0) continue;
            if (class_of(link, graph_.node(link.source).kind, graph_.node(link.target).kind) > machine_graph.reach)
                continue;
            gbs[{source, target, link.kind}] += link.bandwidth_gbs;
            if (link.both_ways) gbs[{target, source, link.kind}] += link.bandwidth_gbs;
        }
        for (const auto& [ends, each_gbs] : gbs)
            join(std::get<0>(ends), std::get<1>(ends),
                 unit_gbs > 0 ? std::floor(each_gbs / unit_gbs + 1e-6) : each_gbs);
        for (size_t i = 0; machine_graph.outside && i < machine_graph.nodes.size(); ++i) {
            if (graph_.node(machine_graph.nodes[i]).kind != NodeKind::port) continue;
            join(int(i), outside(), infinite);
            join(outside(), int(i), infinite);
        }
    }
    int outside() const { return int(edges_.size()) - 1; }

    double from_to(int source, int target) {
        for (auto& edges : edges_)
            for (FlowEdge& edge : edges) edge.left = edge.gbs;
        double all = 0;
        while (number(source, target)) {
            next_.assign(edges_.size(), 0);
            while (const double more = push(source, target, infinite)) {
                if (more == infinite) return infinite;
                all += more;
            }
        }
        return all;
    }
    // After a flow: whether the node is on the source's side of the narrowest cut.
    bool reached(int node) const { return level_[size_t(node)] >= 0; }

  private:
    struct FlowEdge {
        int target;
        size_t back;  // its index among the target's edges
        double gbs, left;
    };
    void join(int source, int target, double gbs) {
        auto &out = edges_[size_t(source)], &in = edges_[size_t(target)];
        out.push_back({target, in.size(), gbs, gbs});
        in.push_back({source, out.size() - 1, 0, 0});
    }
    bool number(int source, int target) {
        level_.assign(edges_.size(), -1);
        std::vector<int> queue{source};
        level_[size_t(source)] = 0;
        for (size_t i = 0; i < queue.size(); ++i)
            for (const FlowEdge& edge : edges_[size_t(queue[i])])
                if (edge.left > least_gbs && level_[size_t(edge.target)] < 0) {
                    level_[size_t(edge.target)] = level_[size_t(queue[i])] + 1;
                    queue.push_back(edge.target);
                }
        return level_[size_t(target)] >= 0;
    }
    // Along one path, by levels. Iterative, because paths may be long.
    double push(int source, int target, double most) {
        std::vector<int> way{source};
        while (way.back() != target) {
            const size_t node = size_t(way.back());
            bool found = false;
            for (size_t& i = next_[node]; i < edges_[node].size(); ++i) {
                const FlowEdge& edge = edges_[node][i];
                if (edge.left > least_gbs && level_[size_t(edge.target)] == level_[node] + 1) {
                    way.push_back(edge.target);
                    found = true;
                    break;
                }
            }
            if (found) continue;
            way.pop_back();
            if (way.empty()) return 0;
            ++next_[size_t(way.back())];
        }
        for (size_t i = 0; i + 1 < way.size(); ++i) most = std::min(most, at(way[i]).left);
        if (most == infinite) return most;
        for (size_t i = 0; i + 1 < way.size(); ++i) {
            FlowEdge& edge = at(way[i]);
            edge.left -= most;
            edges_[size_t(edge.target)][edge.back].left += most;
        }
        return most;
    }
    FlowEdge& at(int node) { return edges_[size_t(node)][next_[size_t(node)]]; }

    const Graph& graph_;
    std::vector<std::vector<FlowEdge>> edges_;
    std::vector<int> level_;
    std::vector<size_t> next_;
};

std::string listed(const std::vector<std::string>& names) {
    std::string text;
    for (size_t i = 0; i < std::min(names.size(), told_most); ++i) text += (i > 0 ? ", " : "") + names[i];
    if (names.size() > told_most) text += fmt::format(" and {} more", names.size() - told_most);
    return text;
}

// The name without its bus id.
std::string name_without_busid(const Graph& graph, int index) {
    std::string name = graph.name(index);
    const size_t open = name.find(" ("), close = name.find(')');
    return open == name.npos || close == name.npos ? name : name.erase(open, close + 1 - open);
}

std::string reason(const MachineGraph& machine_graph, const std::vector<int>& inside) {
    const Graph& graph = *machine_graph.graph;
    std::vector<char> is_inside(graph.nodes().size()), is_here(graph.nodes().size());
    for (const int node : machine_graph.nodes) is_here[size_t(node)] = 1;
    for (const int node : inside) is_inside[size_t(node)] = 1;
    std::vector<std::string> sites;
    for (const int site : machine_graph.sites)
        if (is_inside[size_t(site)]) sites.push_back(name_without_busid(graph, site));
    struct Bundle {
        int count = 0;
        double gbs = 0;
    };
    std::map<std::tuple<int, int, LinkKind>, Bundle> bundles;  // from the inside
    for (const Link& link : graph.links()) {
        if (!is_here[size_t(link.source)] || !is_here[size_t(link.target)]) continue;
        if (class_of(link, graph.node(link.source).kind, graph.node(link.target).kind) > machine_graph.reach) continue;
        const bool out = is_inside[size_t(link.source)];
        if (out == bool(is_inside[size_t(link.target)])) continue;
        Bundle& bundle = bundles[{out ? link.source : link.target, out ? link.target : link.source, link.kind}];
        bundle.count += link.kind == LinkKind::nvlink || link.kind == LinkKind::c2c ? link.count : 1;
        bundle.gbs += link.bandwidth_gbs;
    }
    std::vector<std::string> links;
    for (const auto& [ends, bundle] : bundles) {
        const auto [source, target, kind] = ends;
        links.push_back(fmt::format("{}{} of {:.4g} GB/s from {} to {}",
                                    bundle.count > 1 ? fmt::format("{} ", bundle.count) : "", name_of(kind), bundle.gbs,
                                    name_without_busid(graph, source), name_without_busid(graph, target)));
    }
    if (machine_graph.outside && sites.size() == machine_graph.sites.size())
        return fmt::format("the links out of the machine: {}", listed(links));
    return fmt::format("the links that join {} to the rest: {}", listed(sites), listed(links));
}

}  // namespace

Cut narrowest_cut(const MachineGraph& machine_graph, double unit_gbs) {
    MaxFlow flow(machine_graph, unit_gbs);
    std::vector<int> terminals;
    for (size_t i = 0; i < machine_graph.nodes.size(); ++i)
        if (std::find(machine_graph.sites.begin(), machine_graph.sites.end(), machine_graph.nodes[i]) !=
            machine_graph.sites.end())
            terminals.push_back(int(i));
    if (machine_graph.outside) terminals.insert(terminals.begin(), flow.outside());
    Cut cut{infinite, {}, {}};
    if (terminals.empty()) return cut;
    const auto try_flow = [&](int source, int target, bool of_source) {
        const double gbs = flow.from_to(source, target);
        if (gbs >= cut.gbs) return;
        cut.gbs = gbs;
        cut.inside.clear();
        for (size_t i = 0; i < machine_graph.nodes.size(); ++i)
            if (flow.reached(int(i)) == of_source) cut.inside.push_back(machine_graph.nodes[i]);
    };
    // A border has the first terminal on one side and some other terminal on the other.
    for (size_t i = 1; i < terminals.size(); ++i) {
        try_flow(terminals[0], terminals[i], false);
        try_flow(terminals[i], terminals[0], true);
    }
    if (cut.gbs == infinite) return cut;
    // The side with fewer sites, or the one without the outside.
    std::vector<char> is_inside(machine_graph.graph->nodes().size());
    for (const int node : cut.inside) is_inside[size_t(node)] = 1;
    const auto sites = std::count_if(machine_graph.sites.begin(), machine_graph.sites.end(),
                                     [&](int it) { return is_inside[size_t(it)] != 0; });
    if (!machine_graph.outside && 2 * size_t(sites) > machine_graph.sites.size()) {
        cut.inside.clear();
        for (const int node : machine_graph.nodes)
            if (!is_inside[size_t(node)]) cut.inside.push_back(node);
    }
    cut.why = reason(machine_graph, cut.inside);
    return cut;
}

std::vector<std::vector<int>> islands_of(const Graph& graph) {
    std::vector<int> first(graph.nodes().size());
    std::iota(first.begin(), first.end(), 0);
    const auto find = [&](int node) {
        while (first[size_t(node)] != node) node = first[size_t(node)] = first[size_t(first[size_t(node)])];
        return node;
    };
    for (const Link& link : graph.links()) {
        const int one = find(link.source), other = find(link.target);
        first[size_t(std::max(one, other))] = std::min(one, other);
    }
    std::vector<std::vector<int>> islands;
    std::vector<size_t> island(first.size());
    for (size_t node = 0; node < first.size(); ++node) {
        const size_t head = size_t(find(int(node)));
        if (head == node) {
            island[node] = islands.size();
            islands.emplace_back();
        }
        islands[island[head]].push_back(int(node));
    }
    return islands;
}

}  // namespace weft::internal::topology
