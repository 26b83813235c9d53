#include "topology/search/nics.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "topology/model/paths.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::topology {

namespace {

struct Distance {
    PathClass path_class = PathClass::none;
    double bandwidth_gbs = 0;
    bool operator==(const Distance&) const = default;
    // Nearer, or as near and wider.
    bool operator<(const Distance& other) const {
        return std::pair(path_class, -bandwidth_gbs) < std::pair(other.path_class, -other.bandwidth_gbs);
    }
};

class NearPorts {
  public:
    NearPorts(const Graph& graph, std::span<const NicPort> ports)
        : ports_(ports), paths_(graph, {.nvb = false, .net = false}) {
        for (const NicPort& port : ports) {
            nodes_.push_back(node_of(graph, port));
            order_.push_back(unsigned(nodes_.back() < 0 ? unknown : graph.node(nodes_.back()).port.dev));
        }
    }
    // By port.
    std::vector<Distance> of(const RankNodes& rank) {
        std::vector<Distance> nearest(ports_.size());
        for (const int node : rank) {
            const auto [place, fresh] = from_.try_emplace(node);
            if (fresh) place->second = paths_.from(node);
            for (size_t i = 0; i < ports_.size(); ++i) {
                if (nodes_[i] < 0) continue;
                const Path& path = place->second[size_t(nodes_[i])];
                if (path.path_class < PathClass::net)
                    nearest[i] = std::min(nearest[i], Distance{path.path_class, path.bandwidth_gbs});
            }
        }
        return nearest;
    }
    // The index of the port on its host, as rails count them; unknown ones are last.
    unsigned order_of(size_t port) const { return order_[port]; }

  private:
    // -1: the graph has no such port. A device with one port may have no number there.
    static int node_of(const Graph& graph, const NicPort& port) {
        for (const int node : graph.of_kind(NodeKind::port)) {
            const Port& known = graph.node(node).port;
            if (known.name == port.device && (known.number == port.number || known.number == unknown)) return node;
        }
        return -1;
    }

    std::span<const NicPort> ports_;
    Paths paths_;
    std::vector<int> nodes_;
    std::vector<unsigned> order_;
    std::map<int, std::vector<Path>> from_;
};

}  // namespace

std::vector<NicChoice> choose_nics(const Graph& graph, std::span<const NicPort> ports,
                                   std::span<const RankNodes> ranks) {
    NearPorts near(graph, ports);
    std::vector<int> taken(ports.size(), 0);
    std::vector<NicChoice> choices;
    for (const RankNodes& rank : ranks) {
        NicChoice& choice = choices.emplace_back();
        const std::vector<Distance> distances = near.of(rank);
        for (size_t i = 0; i < ports.size(); ++i)
            if (ports[i].usable) choice.ports.push_back(int(i));
        const auto key = [&](int port) {
            return std::tuple(distances[size_t(port)], taken[size_t(port)], near.order_of(size_t(port)));
        };
        std::stable_sort(choice.ports.begin(), choice.ports.end(),
                         [&](int one, int other) { return key(one) < key(other); });
        if (choice.ports.empty()) continue;
        const Distance& first = distances[size_t(choice.ports.front())];
        choice.bandwidth_gbs = first.bandwidth_gbs;
        for (const int port : choice.ports) {
            choice.classes.push_back(distances[size_t(port)].path_class);
            choice.alike += distances[size_t(port)] == first ? 1 : 0;
        }
        ++taken[size_t(choice.ports.front())];
    }
    return choices;
}

std::vector<int> order_of_ports(const Graph& graph, std::span<const NicPort> ports, const RankPlace& place) {
    const int gpu = place.gpu.empty() ? -1 : graph.find(0, normal_busid(place.gpu));
    if (gpu >= 0 && graph.node(gpu).kind == NodeKind::gpu) {
        std::vector<RankNodes> ranks;
        size_t own = 0;
        if (const auto job = job_of_all(graph, 1))
            for (const RankLocation& location : job->locations) {
                if (location.node == gpu) own = ranks.size();
                ranks.push_back({location.node});
            }
        if (own < ranks.size()) return choose_nics(graph, ports, ranks)[own].ports;
    }
    RankNodes nodes;
    CpuMask threads;
    for (const int cpu : graph.of_kind(NodeKind::cpu)) {
        const CpuMask mask = CpuMask::from_mask(graph.node(cpu).cpu.affinity);
        if ((mask & place.cores).empty()) continue;
        nodes.push_back(cpu);
        threads |= mask;
    }
    if (nodes.empty()) nodes = graph.of_kind(NodeKind::cpu);
    constexpr int turns = 1'024;  // more than a host has ports
    int before = place.rank;
    if (nodes.size() == 1 && place.cores.count() < threads.count()) {
        before = 0;
        for (int thread = 0; thread < place.cores.first(); ++thread) before += threads.contains(thread) ? 1 : 0;
        before /= place.cores.count();
    }
    const std::vector<RankNodes> ranks(size_t(before % turns) + 1, nodes);
    return choose_nics(graph, ports, ranks).back().ports;
}

std::string reason_of(const NicChoice& choice) {
    if (choice.ports.empty()) return "no port can be used";
    const std::string distance =
        choice.path_class() == PathClass::none
            ? "its place in the machine is unknown"
            : fmt::format("{}, {:.3g} GB/s", name_of(choice.path_class()), choice.bandwidth_gbs);
    if (choice.ports.size() == 1) return fmt::format("the only one ({})", distance);
    if (choice.alike == 1) return fmt::format("the nearest of {} ({})", choice.ports.size(), distance);
    return fmt::format("one of {} equally near, of {} ({})", choice.alike, choice.ports.size(), distance);
}

}  // namespace weft::internal::topology
