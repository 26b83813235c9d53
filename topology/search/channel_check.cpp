#include "topology/search/channel_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace weft::internal::topology {

namespace {

// Tolerance: speeds in files are rounded nominal values.
constexpr double over_most = 1.02;
constexpr size_t objections_most = 20;
constexpr int64_t steps_most = 20'000'000;

class ChannelCheck {
  public:
    ChannelCheck(const ChannelGraph& channels, const MachineKind& kind)
        : channels_(channels), kind_(kind), graph_(*kind.machine_graph.graph), fabric_(kind.machine_graph) {
        const std::vector<int> devs = devs_of(graph_);
        for (const int index : kind.machine_graph.nodes) {
            const Node& node = graph_.node(index);
            nodes_.try_emplace({node.kind, host_of(node.host), devs[size_t(index)]}, index);
            if (node.kind == NodeKind::gpu && graph_.shares_dev(index) && node.gpu.rank != unknown)
                by_rank_.try_emplace({host_of(node.host), node.gpu.dev, node.gpu.rank}, index);
        }
        for (const int site : kind.sites) sites_.emplace(site, int(sites_.size()));
    }

    std::vector<std::string> run() {
        const bool loops = channels_.pattern == Pattern::ring || channels_.pattern == Pattern::tree ||
                           channels_.pattern == Pattern::balanced_tree || channels_.pattern == Pattern::split_tree;
        if (!loops) return {};  // channels of switches have no order
        // NCCL also writes patterns for which it found no channels; but every job has rings.
        if (channels_.channels.empty() && channels_.pattern != Pattern::ring) return {};
        if (channels_.channels.empty()) object("graph {} has no channels", channels_.id);
        for (size_t i = 0; i < channels_.channels.size(); ++i) walk(i);
        if (objections_.empty()) weigh();
        return std::move(objections_);
    }

  private:
    template <class... Arguments>
    void object(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
        if (objections_.size() < objections_most)
            objections_.push_back(fmt::format(format, std::forward<Arguments>(arguments)...));
    }
    // Numbers of hosts in a file are those of the job that wrote it, so they mean nothing for a machine of one host.
    int host_of(int host) const { return graph_.hosts().size() > 1 ? host : 0; }
    int node_of(const Stop& stop) const {
        // For GPUs that share a dev.
        const auto ranked = by_rank_.find({host_of(stop.host), stop.dev, stop.rank});
        if (stop.kind == NodeKind::gpu && ranked != by_rank_.end()) return ranked->second;
        const auto found = nodes_.find({stop.kind, host_of(stop.host), stop.dev});
        return found == nodes_.end() ? -1 : found->second;
    }
    static std::string shown(const Stop& stop) {
        std::string name = stop.kind == NodeKind::port ? "net" : name_of(stop.kind);
        name += fmt::format(" {}", stop.dev);
        return stop.host > 0 ? name + fmt::format(" of host {}", stop.host) : name;
    }
    void walk(size_t channel) {
        const std::string here = fmt::format("channel {} of graph {}", channel, channels_.id);
        PackedRing ring;
        std::map<int, size_t> met;  // how often each occurs
        const auto& stops = channels_.channels[channel].stops;
        for (size_t i = 0; i < stops.size(); ++i) {
            const int node = node_of(stops[i]);
            if (node < 0) {
                object("{} passes {}, which the machine does not have", here, shown(stops[i]));
                continue;
            }
            if (stops[i].kind == NodeKind::port) {
                if (i != 0 && i + 1 != stops.size())
                    object("{} passes {} in its middle; NICs are the ends of a channel", here, shown(stops[i]));
                (i == 0 ? ring.entry : ring.exit) = node;
                continue;
            }
            const auto site = sites_.find(node);
            if (site == sites_.end())
                object("{} passes {}, on which no rank sits", here, shown(stops[i]));
            else if (++met[node] > 1 + graph_.node(node).parts.size())
                object("{} passes {} twice", here, shown(stops[i]));
            else if (met[node] == 1)  // a partitioned GPU has a stop for each part
                ring.order.push_back(site->second);
        }
        for (const int site : kind_.sites)
            if (met.count(site) == 0) object("{} misses {}", here, graph_.name(site));
        if (kind_.machine_graph.outside && (ring.entry < 0 || ring.exit < 0))
            object("{} has to begin and to end with a net: the job has several machines", here);
        rings_.push_back(std::move(ring));
    }
    // GB/s on each arc as NCCL counts: each hop once in the channel's direction, although trees use both directions.
    std::vector<double> loads(const std::vector<PackedRing>& rings, int64_t& steps) const {
        std::vector<double> loads(fabric_.arcs().size());
        const double outward_gbs = channels_.inter_gbs > 0 ? channels_.inter_gbs : channels_.intra_gbs;
        const auto carry = [&](const std::vector<int>& route, double gbs) {
            for (const int arc : route) loads[size_t(arc)] += gbs;
        };
        const bool is_ring = channels_.pattern == Pattern::ring;
        for (const PackedRing& ring : rings) {
            const bool leads_out = ring.entry >= 0;
            for (size_t hop = 0; hop < ring.routes.size(); ++hop) {
                const bool last = hop + 1 == ring.routes.size();
                if (last && !is_ring) continue;  // a tree does not return to its begin
                carry(ring.routes[hop], leads_out && (hop == 0 || last) ? outward_gbs : channels_.intra_gbs);
            }
            if (is_ring || !leads_out) continue;
            // A tree leaves by the GPU at which it enters, or by the next one.
            const size_t leaves = std::min<size_t>(channels_.pattern == Pattern::tree ? 0 : 1, ring.order.size() - 1);
            std::vector<double> prices;
            for (int arc = 0; arc < int(loads.size()); ++arc) prices.push_back(fabric_.price_of(arc));
            carry(fabric_.routes(ring.order[leaves], RouteScope::leaving, prices, ring.exit, steps).back().arcs,
                  outward_gbs);
        }
        return loads;
    }
    // Routes by the rules of the search, in the order of the file.
    void weigh() {
        if (kind_.sites.size() == 1 && !kind_.machine_graph.outside) return;
        if (channels_.intra_gbs <= 0) return object("graph {} does not say its speed", channels_.id);
        const PackingRequest request{channels_.intra_gbs, int(rings_.size()), false, false, steps_most, rings_};
        int64_t steps = 0;
        const Packing packing = pack(fabric_, request, steps);
        if (packing.ring_gbs <= 0)
            return object("graph {} has neighbours that no link joins; devices do not forward", channels_.id);
        const std::vector<double> wanted = loads(packing.rings, steps);
        double share = 1;
        for (size_t i = 0; i < wanted.size(); ++i) {
            const Arc& arc = fabric_.arcs()[i];
            if (wanted[i] <= arc.gbs * over_most) continue;
            share = std::min(share, arc.gbs / wanted[i]);
            if (channels_.pattern == Pattern::ring)
                object("the link from {} to {} carries {:.4g} GB/s; the channels of graph {} want {:.4g} GB/s of it",
                       graph_.name(arc.source), graph_.name(arc.target), arc.gbs, channels_.id, wanted[i]);
        }
        if (share < 1 && channels_.pattern != Pattern::ring)
            object("the trees of graph {} have {:.4g} GB/s each; their links leave them {:.4g} GB/s", channels_.id,
                   channels_.intra_gbs, channels_.intra_gbs * share);
    }

    const ChannelGraph& channels_;
    const MachineKind& kind_;
    const Graph& graph_;
    const RoutingGraph fabric_;
    std::map<std::tuple<NodeKind, int, int>, int> nodes_;  // by kind, host and dev
    std::map<std::tuple<int, int, int>, int> by_rank_;     // by host, dev and rank
    std::map<int, int> sites_;                             // their indices, by node
    std::vector<PackedRing> rings_;
    std::vector<std::string> objections_;
};

}  // namespace

Result<std::vector<std::string>> check_channels(const ChannelGraph& channels, const Job& job) {
    const auto placed = place(job);
    if (!placed) return placed.status().copy();
    if (placed->kinds.size() > 1)
        return fail(error::topology_placement,
                    "the job has machines of {} kinds; a graph file describes machines of one kind",
                    placed->kinds.size());
    return ChannelCheck(channels, placed->kinds[0]).run();
}

}  // namespace weft::internal::topology
