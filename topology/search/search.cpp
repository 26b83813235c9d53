#include "topology/search/search.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

constexpr double good_enough = 0.995;  // of the bound: then no further candidate is tried
constexpr double worth_it = 1.01;      // a more complex candidate must be better by this factor

struct ChannelCandidate {
    double gbs;  // of each channel
    int channels;
};

class ChannelSearch {
  public:
    ChannelSearch(const Job& job, const SearchOptions& options)
        : job_(job), options_(options), limit_(options.steps_most) {}

    Result<Channels> run() {
        auto placement = place(job_);
        if (!placement) return placement.take_status();
        for (MachineKind& kind : placement->kinds) result_.kinds.emplace_back().MachineKind::operator=(std::move(kind));
        result_.machines = std::move(placement->machines);
        result_.ranks = int(job_.locations.size());
        WEFT_TRY(find_bounds());
        if (result_.bound_of_all_gbs == infinite) {
            // Nothing to search: all ranks are at one site.
            result_.channels = 1;
            result_.bound_gbs = result_.bound_of_all_gbs = 0;
            return std::move(result_);
        }
        search_reaches();
        if (!found_.good())
            return fail(error::topology_no_path,
                        "no ring passes through all ranks: devices do not forward, so each needs "
                        "paths to two others");
        take_found();
        return std::move(result_);
    }

  private:
    // The farthest classes of links for channels, between ranks and from ranks to ports.
    struct Reaches {
        PathClass within = PathClass::sys, outward = PathClass::sys;
    };
    struct FoundChannels {
        int channels = 0;
        double gbs = 0;  // of each
        bool alternates = false;
        Reaches reaches;
        double bound_gbs = 0;
        std::vector<Packing> packings;  // by kind
        double all_gbs() const { return channels * gbs; }
        bool good() const { return channels > 0; }
    };

    Status find_bounds();
    double bound_at(Reaches reaches, double unit_gbs);
    double one_port_bound(const std::vector<MachineGraph>& machine_graphs);
    std::vector<MachineGraph> machine_graphs_at(Reaches reaches) const;
    double gain() const { return 1 + std::max(options_.gain_least, worth_it - 1); }
    void search_reaches();
    FoundChannels search_at(Reaches reaches, double bound_gbs);
    FoundChannels search_at(Reaches reaches, const std::vector<RoutingGraph>& fabrics, bool symmetric, double bound_gbs,
                            bool one_port);
    std::vector<ChannelCandidate> candidates(const std::vector<RoutingGraph>& fabrics, double bound_gbs) const;
    FoundChannels try_packing(const std::vector<RoutingGraph>& fabrics, ChannelCandidate candidate, bool one_port,
                              bool pairs);
    void take_found();
    std::vector<ChannelGraph> graphs_of(const KindChannels& kind) const;
    Stop stop_at(const KindChannels& kind, const std::vector<int>& devs, int node) const;

    const Job& job_;
    const SearchOptions& options_;
    int64_t limit_;  // of steps, for the present search
    Channels result_;
    FoundChannels found_;
};

Status ChannelSearch::find_bounds() {
    result_.bound_of_all_gbs = infinite;
    for (size_t i = 0; i < result_.kinds.size(); ++i) {
        KindChannels& kind = result_.kinds[i];
        kind.bound_of_all = kind.bound = narrowest_cut(kind.machine_graph);
        if (kind.bound.gbs <= 0 && kind.machine_graph.outside)
            return fail(
                error::topology_no_path,
                "the job has {1} machines, but {0} has no NIC port to other machines, or none that all its ranks "
                "reach; the file needs its <net> elements",
                kind.machine_graph.graph->name(kind.sites.front()), result_.machines.size());
        if (kind.bound.gbs <= 0)
            return fail(error::topology_no_path, "no link connects {} to the other ranks",
                        kind.machine_graph.graph->name(kind.sites.front()));
        if (kind.bound.gbs < result_.bound_of_all_gbs) {
            result_.bound_of_all_gbs = kind.bound.gbs;
            result_.bottleneck = int(i);
        }
    }
    return ok();
}

std::vector<MachineGraph> ChannelSearch::machine_graphs_at(Reaches reaches) const {
    std::vector<MachineGraph> machine_graphs;
    for (const KindChannels& kind : result_.kinds) {
        machine_graphs.push_back(kind.machine_graph);
        machine_graphs.back().reach = reaches.within;
        machine_graphs.back().outward = reaches.outward;
    }
    return machine_graphs;
}

// The bandwidth of links of these classes. Ports count only if there are several machines.
double ChannelSearch::bound_at(Reaches reaches, double unit_gbs) {
    double least = infinite;
    for (MachineGraph machine_graph : machine_graphs_at(reaches)) {
        result_.steps += int64_t(machine_graph.sites.size() * machine_graph.graph->links().size());
        MachineGraph inner = machine_graph;
        inner.outside = false;
        least = std::min(least, narrowest_cut(inner).gbs > 0 ? infinite : 0);
        machine_graph.reach = machine_graph.outside ? std::max(reaches.within, reaches.outward) : reaches.within;
        least = std::min(least, narrowest_cut(machine_graph, unit_gbs).gbs);
    }
    return least;
}

// The bound of channels that enter and leave by the same port. Such a chain is a closed path: it crosses each border
// within the machine once in each direction.
double ChannelSearch::one_port_bound(const std::vector<MachineGraph>& machine_graphs) {
    double least = infinite;
    for (MachineGraph inner : machine_graphs) {
        result_.steps += int64_t(inner.sites.size() * inner.graph->links().size());
        inner.outside = false;
        inner.reach = std::max(inner.reach, inner.outward);
        least = std::min(least, narrowest_cut(inner).gbs);
    }
    return least;
}

void ChannelSearch::search_reaches() {
    constexpr PathClass within[] = {PathClass::nvl, PathClass::nvb, PathClass::c2c, PathClass::pix,
                                    PathClass::pxb, PathClass::phb, PathClass::sys};
    constexpr PathClass outward[] = {PathClass::pix, PathClass::pxb, PathClass::pxn, PathClass::phb, PathClass::sys};
    const bool ported = result_.machines.size() > 1;
    for (const PathClass inner : within) {
        for (const PathClass outer : outward) {
            if (!ported && outer != PathClass::sys) continue;
            if (found_.good() && result_.steps > options_.steps_most) return;
            const Reaches reaches{inner, outer};
            const double bound_gbs = bound_at(reaches, 0);
            if (bound_gbs <= 0 || (found_.good() && bound_gbs < found_.all_gbs() * gain())) continue;
            FoundChannels better = search_at(reaches, bound_gbs);
            if (better.good() && (!found_.good() || better.all_gbs() >= found_.all_gbs() * gain()))
                found_ = std::move(better);
            if (found_.all_gbs() >= good_enough * result_.bound_of_all_gbs) return;
        }
    }
}

std::vector<ChannelCandidate> ChannelSearch::candidates(const std::vector<RoutingGraph>& fabrics,
                                                        double bound_gbs) const {
    const int most = std::max(1, options_.channels_most);
    const double widest = std::max(options_.channel_gbs_most, bound_gbs / most);
    std::set<double> widths{bound_gbs};
    for (const RoutingGraph& fabric : fabrics)
        for (const Arc& arc : fabric.arcs())
            if (arc.gbs > 0) widths.insert(arc.gbs);
    std::set<double> each_gbs;
    for (const double width : widths)
        for (int parts = 1; parts <= most; ++parts)
            if (width / parts <= widest * 1.0001) each_gbs.insert(std::min(width / parts, bound_gbs));
    std::vector<ChannelCandidate> found;
    for (const double gbs : each_gbs)
        found.push_back({gbs, int(std::min(double(most), std::floor(bound_gbs / gbs + 1e-6)))});
    // The most promising candidate first. Among similar ones, few channels, in pairs for trees.
    const auto fiftieths = [&](const ChannelCandidate& it) {
        return int(it.gbs * it.channels / bound_gbs * 50 + 1e-6);
    };
    std::stable_sort(found.begin(), found.end(), [&](const ChannelCandidate& one, const ChannelCandidate& other) {
        const auto row = [&](const ChannelCandidate& it) {
            return std::tuple(-fiftieths(it), it.channels > 1 && it.channels % 2 == 1, it.channels, -it.gbs);
        };
        return row(one) < row(other);
    });
    return found;
}

ChannelSearch::FoundChannels ChannelSearch::try_packing(const std::vector<RoutingGraph>& fabrics,
                                                        ChannelCandidate candidate, bool one_port, bool pairs) {
    FoundChannels found;
    found.gbs = infinite;
    for (const RoutingGraph& fabric : fabrics) {
        Packing packing = pack(fabric,
                               {.unit_gbs = candidate.gbs,
                                .rings = candidate.channels,
                                .pairs = pairs,
                                .one_port = one_port,
                                .steps_most = limit_,
                                .given = {}},
                               result_.steps);
        if (packing.ring_gbs <= 0) return {};
        found.gbs = std::min(found.gbs, packing.ring_gbs);
        found.packings.push_back(std::move(packing));
    }
    found.channels = candidate.channels;
    return found;
}

ChannelSearch::FoundChannels ChannelSearch::search_at(Reaches reaches, double bound_gbs) {
    const std::vector<MachineGraph> machine_graphs = machine_graphs_at(reaches);
    std::vector<RoutingGraph> fabrics;
    bool symmetric = true;
    for (const MachineGraph& machine_graph : machine_graphs) {
        fabrics.emplace_back(machine_graph);
        symmetric &= fabrics.back().symmetric();
    }
    if (result_.machines.size() == 1) return search_at(reaches, fabrics, symmetric, bound_gbs, false);
    const double rails_bound_gbs =
        options_.rails == RailUse::any ? 0 : std::min(bound_gbs, one_port_bound(machine_graphs));
    const auto on_rails = [&] { return search_at(reaches, fabrics, symmetric, rails_bound_gbs, true); };
    const auto crossing = [&] {
        FoundChannels found = search_at(reaches, fabrics, symmetric, bound_gbs, false);
        // Only if machines are equal, their NICs are at the same ends of a channel.
        found.alternates = symmetric && result_.kinds.size() == 1 && options_.rails == RailUse::best;
        return found;
    };
    if (options_.rails == RailUse::only) return on_rails();
    if (options_.rails == RailUse::any) return crossing();
    // The form with the greater bound is first, but leaves half of the steps to the other.
    limit_ = result_.steps + std::max<int64_t>(0, options_.steps_most - result_.steps) / 2;
    if (rails_bound_gbs * worth_it >= bound_gbs) {
        FoundChannels best = on_rails();
        limit_ = options_.steps_most;
        if (best.all_gbs() >= good_enough * bound_gbs) return best;
        FoundChannels other = crossing();
        return other.all_gbs() > best.all_gbs() * worth_it ? std::move(other) : std::move(best);
    }
    FoundChannels best = crossing();
    limit_ = options_.steps_most;
    if (best.all_gbs() > rails_bound_gbs * worth_it) return best;
    FoundChannels other = on_rails();
    return other.good() && best.all_gbs() <= other.all_gbs() * worth_it ? std::move(other) : std::move(best);
}

ChannelSearch::FoundChannels ChannelSearch::search_at(Reaches reaches, const std::vector<RoutingGraph>& fabrics,
                                                      bool symmetric, double bound_gbs, bool one_port) {
    FoundChannels best;
    for (const ChannelCandidate& candidate : candidates(fabrics, bound_gbs)) {
        if (best.good() && (candidate.gbs * candidate.channels <= best.all_gbs() * worth_it ||
                            best.all_gbs() >= good_enough * bound_gbs || result_.steps > limit_))
            break;
        // The bound for whole channels.
        const double whole = best.good() ? bound_at(reaches, candidate.gbs) : infinite;
        const int channels = std::max(1, int(std::min(double(candidate.channels), whole + 0.5)));
        for (const bool pairs : {true, false}) {
            if (pairs && (!symmetric || channels % 2 != 0)) continue;
            if (channels * candidate.gbs <= best.all_gbs() * worth_it) break;
            FoundChannels found = try_packing(fabrics, {candidate.gbs, channels}, one_port, pairs);
            if (!found.good() && !best.good()) return best;  // no ring exists at any bandwidth
            if (found.all_gbs() > best.all_gbs()) best = std::move(found);
        }
    }
    best.reaches = reaches;
    best.bound_gbs = result_.machines.size() > 1 ? result_.bound_of_all_gbs : bound_gbs;  // of both forms
    return best;
}

Stop ChannelSearch::stop_at(const KindChannels& kind, const std::vector<int>& devs, int node) const {
    const Node& it = kind.machine_graph.graph->node(node);
    Stop stop{it.kind, devs[size_t(node)], unknown, it.host};
    if (it.kind != NodeKind::port && result_.machines.size() == 1) {
        const auto site = std::find(kind.sites.begin(), kind.sites.end(), node) - kind.sites.begin();
        stop.rank = result_.machines[0].ranks[size_t(site)].front();
    }
    return stop;
}

std::vector<ChannelGraph> ChannelSearch::graphs_of(const KindChannels& kind) const {
    ChannelGraph ring;
    ring.id = 0;
    ring.pattern = Pattern::ring;
    ring.cross_nic = result_.alternates ? 2 : 0;
    ring.intra_gbs = ring.inter_gbs = result_.channel_gbs;
    const std::vector<int> devs = devs_of(*kind.machine_graph.graph);
    ring.channels.reserve(kind.packing.rings.size());
    for (const PackedRing& packed : kind.packing.rings) {
        ChannelPath& path = ring.channels.emplace_back();
        if (packed.entry >= 0) path.stops.push_back(stop_at(kind, devs, packed.entry));
        for (const int site : packed.order) path.stops.push_back(stop_at(kind, devs, kind.sites[size_t(site)]));
        if (packed.exit >= 0) path.stops.push_back(stop_at(kind, devs, packed.exit));
        ring.type_intra = std::max(ring.type_intra, packed.within);
        ring.type_inter = std::max(ring.type_inter, packed.outward);
        if (packed.entry != packed.exit && ring.cross_nic == 0) ring.cross_nic = 1;
    }
    // Trees use the chains of the rings, in both directions at once, and leave by the port at the chain's begin.
    // Through it pass twice the bytes that both trees of a pair reduce.
    ChannelGraph tree = ring;
    tree.id = 1;
    tree.pattern = Pattern::tree;
    tree.cross_nic = 0;
    if (!kind.packing.rings.empty() && kind.packing.rings[0].entry >= 0)
        for (ChannelPath& path : tree.channels) path.stops.back() = path.stops.front();
    const RoutingGraph fabric(kind.machine_graph);
    tree.intra_gbs = tree.inter_gbs = tree_gbs(fabric, kind.packing.rings);
    return {std::move(ring), std::move(tree)};
}

void ChannelSearch::take_found() {
    result_.channels = found_.channels;
    result_.channel_gbs = found_.gbs;
    result_.alternates = found_.alternates;
    result_.found_gbs = found_.all_gbs();
    result_.bound_gbs = found_.bound_gbs;
    for (size_t i = 0; i < result_.kinds.size(); ++i) {
        KindChannels& kind = result_.kinds[i];
        kind.packing = std::move(found_.packings[i]);
        kind.machine_graph.reach = found_.reaches.within;
        kind.machine_graph.outward = found_.reaches.outward;
        if (!kind.machine_graph.outside) kind.bound = narrowest_cut(kind.machine_graph);
    }
    double gbs = infinite;
    for (size_t i = 0; i < result_.kinds.size(); ++i)
        if (result_.kinds[i].bound.gbs < gbs) {
            gbs = result_.kinds[i].bound.gbs;
            result_.bottleneck = int(i);
        }
    for (KindChannels& kind : result_.kinds) kind.graphs = graphs_of(kind);
}

}  // namespace

Result<Channels> search(const Job& job, const SearchOptions& options) { return ChannelSearch(job, options).run(); }

}  // namespace weft::internal::topology
