#include "topology/channel_check.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <tuple>

namespace weft::topology {

namespace {

// Speeds in files are rounded, and nominal.
constexpr double over_most = 1.02;
constexpr size_t objections_most = 20;
constexpr int64_t steps_most = 20'000'000;

class Check {
  public:
    Check(const ChannelGraph& channels, const MachineKind& kind)
        : channels_(channels), kind_(kind), graph_(*kind.terrain.graph), fabric_(kind.terrain) {
        const std::vector<int> devs = devs_of(graph_);
        for (const int index : kind.terrain.nodes) {
            const Node& node = graph_.node(index);
            nodes_.try_emplace({node.kind, host_of(node.host), devs[size_t(index)]}, index);
        }
        for (const int site : kind.sites) sites_.emplace(site, int(sites_.size()));
    }

    std::vector<std::string> run() {
        const bool loops = channels_.pattern == Pattern::ring || channels_.pattern == Pattern::tree ||
                           channels_.pattern == Pattern::balanced_tree || channels_.pattern == Pattern::split_tree;
        if (!loops) return {};  // channels of switches have no order
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
    // Files number the hosts of the job that wrote them: of one host's machine the number says nothing.
    int host_of(int host) const { return graph_.hosts().size() > 1 ? host : 0; }
    int node_of(const Stop& stop) const {
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
        std::set<int> met;
        const auto& stops = channels_.channels[channel].stops;
        for (size_t i = 0; i < stops.size(); ++i) {
            const int node = node_of(stops[i]);
            if (node < 0) {
                object("{} passes {}, which the machine does not have", here, shown(stops[i]));
                continue;
            }
            if (stops[i].kind == NodeKind::port) {
                if (i != 0 && i + 1 != stops.size())
                    object("{} passes {} on its way; NICs are a channel's ends", here, shown(stops[i]));
                (i == 0 ? ring.entry : ring.exit) = node;
                continue;
            }
            const auto site = sites_.find(node);
            if (site == sites_.end())
                object("{} passes {}, on which no rank sits", here, shown(stops[i]));
            else if (!met.insert(node).second)
                object("{} passes {} twice", here, shown(stops[i]));
            else
                ring.order.push_back(site->second);
        }
        for (const int site : kind_.sites)
            if (met.count(site) == 0) object("{} misses {}", here, graph_.name(site));
        if (kind_.terrain.outside && (ring.entry < 0 || ring.exit < 0))
            object("{} has to begin and to end with a net: the job has several machines", here);
        rings_.push_back(std::move(ring));
    }
    // Routes as the search would choose them, the orders as they are.
    void weigh() {
        if (kind_.sites.size() == 1 && !kind_.terrain.outside) return;
        if (channels_.intra_gbs <= 0) return object("graph {} does not say its speed", channels_.id);
        const PackingRequest request{channels_.intra_gbs, int(rings_.size()), false, false, steps_most, rings_};
        int64_t steps = 0;
        const Packing packing = pack(fabric_, request, steps);
        if (packing.ring_gbs <= 0)
            return object("graph {} has neighbours that no link joins; devices do not forward", channels_.id);
        if (channels_.pattern != Pattern::ring) {
            const double gbs = tree_gbs(fabric_, packing.rings);
            if (gbs * over_most < channels_.intra_gbs)
                object("the trees of graph {} have {:.4g} GB/s each; their links leave them {:.4g} GB/s", channels_.id,
                       channels_.intra_gbs, gbs);
            return;
        }
        if (packing.ring_gbs * over_most >= channels_.intra_gbs) return;
        for (size_t i = 0; i < packing.uses.size(); ++i) {
            const Arc& arc = fabric_.arcs()[i];
            const double gbs = packing.uses[i] * channels_.intra_gbs;
            if (gbs > arc.gbs * over_most)
                object("the link from {} to {} carries {:.4g} GB/s; the channels of graph {} want {:.4g} GB/s of it",
                       graph_.name(arc.source), graph_.name(arc.target), arc.gbs, channels_.id, gbs);
        }
    }

    const ChannelGraph& channels_;
    const MachineKind& kind_;
    const Graph& graph_;
    const Fabric fabric_;
    std::map<std::tuple<NodeKind, int, int>, int> nodes_;  // by kind, host and dev
    std::map<int, int> sites_;                             // their places, by node
    std::vector<PackedRing> rings_;
    std::vector<std::string> objections_;
};

}  // namespace

Result<std::vector<std::string>> check_channels(const ChannelGraph& channels, const Job& job) {
    const auto placed = place(job);
    if (!placed) return Status(placed.status().code(), placed.status().sentence());
    if (placed->kinds.size() > 1)
        return fail(weftInvalidArgument, "the job has machines of {} kinds; a graph file describes those of one",
                    placed->kinds.size());
    return Check(channels, placed->kinds[0]).run();
}

}  // namespace weft::topology
