// Linear gather and scatter: everybody to or from the root, at once. One round, (N-1)/N of the buffer through the root
// and no byte twice through anybody: for large messages and few ranks.
// Source: the basic algorithm of every MPI library.
#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

// One would do; with two the next tile is on its way while this one is taken in.
static constexpr int fifo_depth = 2;

// Who has a connection to each, with slots: the root.
static constexpr int ranks_most = 128;

static Builder builder(Collective collective, const Layout& layout, const Parameters& parameters) {
    return {"linear",
            collective,
            layout,
            {.chunks = layout.ranks, .fifo_depth = layout.ranks > 1 ? fifo_depth : 0, .root = parameters.root}};
}

Schedule linear_gather(const Layout& layout, const Parameters& parameters) {
    Builder schedule = builder(Collective::gather, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.target = parameters.root}).send({layout.rank});
        return schedule.finish();
    }
    schedule.block({}).copy({layout.rank});
    for (int peer = 0; peer < layout.ranks; ++peer)
        if (peer != layout.rank) schedule.block({.source = peer}).recv({peer});
    return schedule.finish();
}

Schedule linear_scatter(const Layout& layout, const Parameters& parameters) {
    Builder schedule = builder(Collective::scatter, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.source = parameters.root}).recv({layout.rank});
        return schedule.finish();
    }
    schedule.block({}).copy({layout.rank});
    for (int peer = 0; peer < layout.ranks; ++peer)
        if (peer != layout.rank) schedule.block({.target = peer}).send({peer});
    return schedule.finish();
}

double linear_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const bool crosses = network.hosts() > 1;
    const double others = double(bytes) * (layout.ranks - 1) / layout.ranks;
    // The root handles every message.
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const double messages =
        network.one_way_us(crosses) + (layout.ranks - 2) * (crosses ? costs.net_message_us : costs.meeting_us());
    return messages + std::max(crosses ? network.link_us(others) : 0, 2 * alone.stream_us(size_t(others), bytes));
}

const char* too_many_for_one(const Layout& layout) {
    if (layout.ranks > ranks_most) return "the root needs a connection to every rank: at most 128 ranks";
    return layout.host_count() > 1 ? too_many_of_a_host(layout) : nullptr;
}

}  // namespace weft
