#include "topology/search/rails.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "topology/model/paths.hpp"

namespace weft::internal::topology {

namespace {

// The ports of one graph by which a rank there leaves, with equal ones together.
class NearestPorts {
  public:
    explicit NearestPorts(const Graph& graph) : graph_(graph), ports_(graph.of_kind(NodeKind::port)) {
        const auto number = [&](int port) { return unsigned(graph_.node(port).port.dev); };  // unknown ones last
        std::stable_sort(ports_.begin(), ports_.end(), [&](int one, int other) { return number(one) < number(other); });
        if (!ports_.empty()) paths_ = std::make_unique<Paths>(graph, PathOptions{.nvb = false, .net = false});
    }
    int count() const { return int(ports_.size()); }
    const std::vector<int32_t>& of(int node) {
        const auto [place, fresh] = near_.try_emplace(node);
        if (fresh && paths_) place->second = find(node);
        return place->second;
    }

  private:
    std::vector<int32_t> find(int node) const {
        const std::vector<Path> ways = paths_->from(node);
        const auto distance = [&](int port) {
            return std::pair(ways[size_t(port)].path_class, -ways[size_t(port)].bandwidth_gbs);
        };
        std::vector<int32_t> best;
        for (size_t i = 0; i < ports_.size(); ++i) {
            if (distance(ports_[i]).first >= PathClass::net) continue;
            if (!best.empty() && distance(ports_[i]) > distance(ports_[size_t(best[0])])) continue;
            if (!best.empty() && distance(ports_[i]) < distance(ports_[size_t(best[0])])) best.clear();
            best.push_back(int32_t(i));
        }
        return best;
    }

    const Graph& graph_;
    std::vector<int> ports_;  // by number
    std::unique_ptr<Paths> paths_;
    std::map<int, std::vector<int32_t>> near_;
};

}  // namespace

std::vector<int32_t> rails_of(const Job& job) {
    std::vector<NearestPorts> ports;
    for (const Graph* graph : job.graphs) ports.emplace_back(*graph);
    std::vector<std::vector<int>> taken;  // by host set and port
    for (const int graph : job.graph_of) taken.emplace_back(size_t(ports[size_t(graph)].count()), 0);
    std::vector<int32_t> rails;
    for (const RankLocation& location : job.locations) {
        auto& taken_here = taken[size_t(location.host_set)];
        const auto& near = ports[size_t(job.graph_of[size_t(location.host_set)])].of(location.node);
        const auto least = std::min_element(near.begin(), near.end(), [&](int32_t one, int32_t other) {
            return taken_here[size_t(one)] < taken_here[size_t(other)];
        });
        rails.push_back(least == near.end() ? unknown : *least);
        if (least != near.end()) ++taken_here[size_t(*least)];
    }
    return rails;
}

}  // namespace weft::internal::topology
