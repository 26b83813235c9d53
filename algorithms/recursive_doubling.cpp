// Recursive doubling all-reduce, for tiny messages. In round d each rank exchanges its whole sum with the rank whose
// number differs in bit d: log2 N rounds of the whole buffer. If N is no power of two, the first ranks form pairs. One
// rank of each pair takes part for both and returns the result: two more rounds.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
#include <algorithm>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
static constexpr int recursive_doubling_fifo_depth = 2;

static int largest_power_within(int ranks) {
    int power = 1;
    while (2 * power <= ranks) power *= 2;
    return power;
}

Schedule recursive_doubling_all_reduce(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks, exchanging = largest_power_within(ranks), pairs = ranks - exchanging;
    Builder schedule("recursive_doubling", Collective::all_reduce, layout,
                     {.chunks = 1, .fifo_depth = ranks > 1 ? recursive_doubling_fifo_depth : 0});
    if (ranks == 1) {
        schedule.block({}).copy({0}).finish();
        return schedule.finish();
    }
    const RankOrder order = layout.host_major();
    const int here = layout.position();
    const bool paired = here < 2 * pairs;
    if (paired && here % 2 == 1) {
        const int partner = order[size_t(here - 1)];
        StepBuilder given = schedule.block({.target = partner}).send({0});
        schedule.block({.source = partner}).recv({0}).after(given);
        return schedule.finish();
    }
    // The participants are numbered without the other ranks.
    const int number = paired ? here / 2 : here - pairs;
    const auto rank_numbered = [&](int n) { return order[size_t(n < pairs ? 2 * n : n + pairs)]; };
    std::optional<StepBuilder> have;  // the step that completed the output so far; empty: the sum is the input
    const auto held = [&] { return have ? Buffer::output : Buffer::input; };
    if (paired) have = schedule.block({.source = order[size_t(here + 1)]}).recv_reduce_copy({0}).left();
    for (int distance = 1; distance < exchanging; distance *= 2) {
        const int peer = number ^ distance;
        BlockBuilder block = schedule.block({.source = rank_numbered(peer), .target = rank_numbered(peer)});
        StepBuilder sent = block.send({0}).from(held());
        if (have) sent.after(*have);
        // Both ranks must sum in the same order: the lower part is the left operand.
        StepBuilder sum = block.recv_reduce_copy({0}).from(held());
        if (number < peer) sum.left();
        if (2 * distance == exchanging) sum.finish();
        have = sum;
    }
    if (paired) schedule.block({.target = order[size_t(here + 1)]}).send({0}).from(Buffer::output).after(*have);
    return schedule.finish();
}

// The length of aligned groups of ranks that are on one machine: they exchange without the network.
static int ranks_together(const Network& network, const Layout& layout) {
    if (!network.machines() || largest_power_within(layout.ranks) != layout.ranks) return 1;
    int together = layout.ranks;
    for (const auto ranks : layout.ranks_by_host()) together = std::min(together, int(ranks.size() & -ranks.size()));
    return together;
}

double recursive_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const int exchanging = largest_power_within(layout.ranks);
    Network::Rounds rounds;
    using ReceivedData = Network::ReceivedData;
    const int together = ranks_together(network, layout);
    for (int distance = 1; distance < exchanging; distance *= 2) {
        if (distance >= together) {
            network.add_round(rounds, distance, double(bytes), ReceivedData::parts);
        } else {
            rounds.latency_us += network.message_us(false);
            rounds.handling_us += network.handling_us(double(bytes));
        }
    }
    if (exchanging != layout.ranks)
        for (const ReceivedData coming : {ReceivedData::parts, ReceivedData::finished})
            network.add_round(rounds, 1, double(bytes), coming);
    return network.overlapped_us(rounds, double(bytes), double(costs.net_slot_bytes));
}

}  // namespace weft::internal
