#include "topology/search/search_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::internal::topology {

namespace {

std::string plural(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

std::string gbs(double value) { return fmt::format("{:.4g} GB/s", value); }

std::string of_kind(const Channels& channels, const KindChannels& kind) {
    const Graph& graph = *kind.machine_graph.graph;
    const auto& rings = kind.packing.rings;
    std::string text;
    if (channels.kinds.size() > 1)
        text += fmt::format("{} with {}\n", plural(kind.machines, "machine"), plural(int(kind.sites.size()), "site"));
    for (size_t i = 0; i < rings.size(); ++i) {
        std::string line;
        const auto add = [&](int node) { line += " " + short_name(graph, node); };
        if (rings[i].entry >= 0) add(rings[i].entry);
        for (const int site : rings[i].order) add(kind.sites[size_t(site)]);
        if (rings[i].exit >= 0) add(rings[i].exit);
        text += fmt::format("  {:>2}:{}\n", i, line);
    }
    if (!rings.empty() && kind.packing.narrowest >= 0) {
        const RoutingGraph fabric(kind.machine_graph);
        const Arc& arc = fabric.arcs()[size_t(kind.packing.narrowest)];
        text += fmt::format("  the fullest link: from {} to {}, {} for {}\n", graph.name(arc.source),
                            graph.name(arc.target), gbs(arc.gbs),
                            plural(kind.packing.uses[size_t(kind.packing.narrowest)], "channel"));
    }
    return text;
}

}  // namespace

std::string short_name(const Graph& graph, int index) {
    const Node& node = graph.node(index);
    std::string name = graph.name(index);
    if (node.kind == NodeKind::gpu)
        name = node.gpu.dev == unknown || graph.shares_dev(index) ? node.busid : fmt::format("gpu{}", node.gpu.dev);
    if (node.kind == NodeKind::cpu) name = fmt::format("cpu{}", node.cpu.numaid);
    if (node.kind == NodeKind::port)
        name = node.port.name.empty() ? fmt::format("net{}", node.port.dev) : node.port.name;
    return graph.hosts().size() > 1 ? fmt::format("{}:{}", node.host, name) : name;
}

double tree_gbs(const Channels& channels) {
    double least = 0;
    for (const KindChannels& kind : channels.kinds) {
        const double its = kind.graphs[1].intra_gbs * channels.channels;
        least = least > 0 ? std::min(least, its) : its;
    }
    return least;
}

std::string write_text(const Channels& channels) {
    std::string text =
        fmt::format("{} on {}\n", plural(channels.ranks, "rank"), plural(int(channels.machines.size()), "machine"));
    if (channels.channel_gbs <= 0) return text + "all on one device: no link is needed\n";
    PathClass within = PathClass::loc, outward = PathClass::loc;
    for (const KindChannels& kind : channels.kinds) {
        within = std::max(within, kind.graphs[0].type_intra);
        outward = std::max(outward, kind.graphs[0].type_inter);
    }
    text += fmt::format("rings: {} of {} each, {} in all", plural(channels.channels, "channel"),
                        gbs(channels.channel_gbs), gbs(channels.found_gbs));
    if (within != PathClass::loc) text += fmt::format(", {} within a machine", name_of(within));
    if (outward != PathClass::loc) {
        text += fmt::format(", {} to NICs, ", name_of(outward));
        text += channels.alternates                          ? "every second machine in reverse order"
                : channels.kinds[0].graphs[0].cross_nic == 0 ? "in and out by the same NIC"
                                                             : "in and out by different NICs";
    }
    text += "\n";
    for (const KindChannels& kind : channels.kinds) text += of_kind(channels, kind);
    text += fmt::format("trees: the same chains, {} reduced and handed back\n", gbs(tree_gbs(channels)));
    const KindChannels& bottleneck = channels.kinds[size_t(channels.bottleneck)];
    text += fmt::format("quality: {:.1f} % of what these links can carry, {}\n", 100 * channels.ratio(),
                        gbs(channels.bound_gbs));
    text += fmt::format("bound by {}\n", bottleneck.bound.why);
    if (channels.bound_of_all_gbs > channels.bound_gbs * 1.0001)
        text += fmt::format("all links, farther ones beside nearer ones, could carry {}: {:.1f} %\n",
                            gbs(channels.bound_of_all_gbs), 100 * channels.found_gbs / channels.bound_of_all_gbs);
    return text + fmt::format("search: {} steps\n", channels.steps);
}

}  // namespace weft::internal::topology
