// Linear: all ranks exchange with the root at once. Gather and scatter: one round, (N-1)/N of the buffer through the
// root, and no byte is forwarded: for large messages and few ranks. Broadcast, reduce, and linear_ahead of gather and
// scatter: the root handles N-1 messages, but a sender never waits while it has free slots. They have many slots: for
// small messages on one host.
// Source: the basic algorithm of every MPI library.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
static constexpr int linear_fifo_depth = 2;

// The root has a connection with slots to each rank.
static constexpr int linear_ranks_most = 128;

// Senders may be this many calls ahead, and further where no slot is needed. The root has connections to all ranks.
static constexpr int ahead_most = 64, ranks_ahead_most = 32;

static Builder parts_builder(const char* name, int fifo_depth, Collective collective, const Layout& layout,
                             const Parameters& parameters) {
    return {name,
            collective,
            layout,
            {.chunks = layout.ranks, .fifo_depth = layout.ranks > 1 ? fifo_depth : 0, .root = parameters.root}};
}

static Schedule gather_by(const char* name, int fifo_depth, const Layout& layout, const Parameters& parameters) {
    Builder schedule = parts_builder(name, fifo_depth, Collective::gather, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.target = parameters.root}).send({layout.rank});
        return schedule.finish();
    }
    schedule.block({}).copy({layout.rank});
    for (int peer = 0; peer < layout.ranks; ++peer)
        if (peer != layout.rank) schedule.block({.source = peer}).recv({peer});
    return schedule.finish();
}

static Schedule scatter_by(const char* name, int fifo_depth, const Layout& layout, const Parameters& parameters) {
    Builder schedule = parts_builder(name, fifo_depth, Collective::scatter, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.source = parameters.root}).recv({layout.rank});
        return schedule.finish();
    }
    schedule.block({}).copy({layout.rank});
    for (int peer = 0; peer < layout.ranks; ++peer)
        if (peer != layout.rank) schedule.block({.target = peer}).send({peer});
    return schedule.finish();
}

Schedule linear_gather(const Layout& layout, const Parameters& parameters) {
    return gather_by("linear", linear_fifo_depth, layout, parameters);
}
Schedule linear_scatter(const Layout& layout, const Parameters& parameters) {
    return scatter_by("linear", linear_fifo_depth, layout, parameters);
}
Schedule linear_ahead_gather(const Layout& layout, const Parameters& parameters) {
    return gather_by("linear_ahead", ahead_most, layout, parameters);
}
Schedule linear_ahead_scatter(const Layout& layout, const Parameters& parameters) {
    return scatter_by("linear_ahead", ahead_most, layout, parameters);
}

static Builder whole_builder(Collective collective, const Layout& layout, const Parameters& parameters) {
    return {"linear",
            collective,
            layout,
            {.chunks = 1, .fifo_depth = layout.ranks > 1 ? ahead_most : 0, .root = parameters.root}};
}

Schedule linear_broadcast(const Layout& layout, const Parameters& parameters) {
    Builder schedule = whole_builder(Collective::broadcast, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.source = parameters.root}).recv({0});
        return schedule.finish();
    }
    for (int peer = 0; peer < layout.ranks; ++peer)
        if (peer != layout.rank) schedule.block({.target = peer}).send({0});
    schedule.block({}).copy({0});
    return schedule.finish();
}

Schedule linear_reduce(const Layout& layout, const Parameters& parameters) {
    Builder schedule = whole_builder(Collective::reduce, layout, parameters);
    if (layout.rank != parameters.root) {
        schedule.block({.target = parameters.root}).send({0});
        return schedule.finish();
    }
    if (layout.ranks == 1) schedule.block({}).copy({0}).finish();
    std::optional<StepBuilder> sum;
    for (int peer = 0; peer < layout.ranks; ++peer) {
        if (peer == layout.rank) continue;
        StepBuilder next = schedule.block({.source = peer}).recv_reduce_copy({0});
        if (sum) next.from(Buffer::output).left().after(*sum);
        sum = next;
    }
    if (sum) sum->finish();
    return schedule.finish();
}

// Cost of the root's messages and copies, beside those of the ranks on its core. `streams`: passes over the data, which
// cost more once the slots no longer stay in the cache. `bytes`: of one message of a call of `whole` bytes.
static double ahead_us(const Layout& layout, const LinkCosts& costs, size_t bytes, size_t whole, double streams) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * whole);
    constexpr double message_us = 0.03, leaves_cache = 2.6;
    constexpr size_t cached_bytes = 256 << 10;
    const int peers = layout.ranks - 1, turns = costs.ranks_per_core;
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    return peers * turns * message_us + streams * (peers + turns - 1) * alone.stream_us(bytes, 2 * whole) *
                                            (size_t(peers) * bytes <= cached_bytes ? 1 : leaves_cache);
}
double linear_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    // Two ranks: the message of a tree, in more slots. No slot is waited for, but the slots leave the cache sooner.
    if (layout.ranks == 2)
        return Network(layout, costs, bytes).one_way_us(false) + 2.5 * costs.stream_us(bytes, 2 * bytes);
    return ahead_us(layout, costs, bytes, bytes, 0.7);
}
double linear_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return ahead_us(layout, costs, bytes, bytes, 1.15);
}

// With parts, each rank's message is its own. Two ranks with a core each take no turns: the cost is that of the message
// and of copies through more slots.
static double parts_ahead_us(const Layout& layout, const LinkCosts& costs, size_t bytes, double streams) {
    const bool no_turns = layout.ranks == 2 && costs.ranks_per_core == 1;
    return ahead_us(layout, costs, bytes / size_t(layout.ranks), bytes, no_turns ? 2.3 : streams);
}
double linear_ahead_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return parts_ahead_us(layout, costs, bytes, 1.2);
}
double linear_ahead_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return parts_ahead_us(layout, costs, bytes, 1.55);
}

const char* too_many_ahead(const Layout& layout) {
    if (layout.host_count() > 1) return "needs all ranks on one host";
    return layout.ranks > ranks_ahead_most ? "the root needs many slots for every rank: at most 32 ranks" : nullptr;
}

// Between machines the root sends while its link transmits. Arrivals have shared that link and are handled at once.
static double root_us(const Network& network, const Layout& layout, const LinkCosts& costs, size_t bytes, bool comes) {
    const double ranks = layout.ranks, part = double(bytes) / ranks;
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const double link = network.lone_link_us(part * (ranks - network.ranks_a_host()));
    // The blocks of a kernel poll side by side.
    const double work = network.remote_peers() * network.end_us() +
                        costs.side_by_side * ((network.ranks_a_host() - 1) * costs.signal_us +
                                              alone.stream_us(size_t(part * (ranks - 1)), bytes));
    return network.one_way_us(true, 2 / ranks) + (comes ? link + work : std::max(link, work));
}

static double star_us(const Layout& layout, const LinkCosts& costs, size_t bytes, bool comes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const bool crosses = network.hosts() > 1;
    if (network.machines()) return root_us(network, layout, costs, bytes, comes);
    const double others = double(bytes) * (layout.ranks - 1) / layout.ranks;
    // The root handles every message.
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    // Between hosts the root's work counts, and every other rank works once. Within a host each rank has one turn on
    // its core.
    const double turn_us = costs.signal_us + (costs.ranks_per_core > 1 ? costs.switch_us : 0);
    const double messages = network.one_way_us(crosses, crosses ? 2.0 / layout.ranks : 1) +
                            (layout.ranks - 2) * (crosses ? costs.net_message_us : turn_us);
    return messages + std::max(crosses ? network.lone_link_us(others) : 0, 2 * alone.stream_us(size_t(others), bytes));
}

double linear_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return star_us(layout, costs, bytes, true);
}
double linear_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return star_us(layout, costs, bytes, false);
}

const char* too_many_for_one(const Layout& layout) {
    if (layout.ranks > linear_ranks_most) return "the root needs a connection to every rank: at most 128 ranks";
    return layout.host_count() > 1 ? too_many_of_a_host(layout) : nullptr;
}

}  // namespace weft::internal
