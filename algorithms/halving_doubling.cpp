// Halving-doubling all-reduce for any number of ranks: in each round of the first half everybody sends half of the
// chunks it still sums to the rank half of the remaining distance ahead; the second half goes back, doubling what is
// finished. 2 ceil(log2 N) messages and 2(N-1)/N of the buffer, the least possible: for middle-sized messages.
// It is the circulant form, which needs no case of its own where N is no power of two: the skips are N, N/2, .. 1,
// rounded up, and every message is one span of chunks, going round. Each half by itself is a reduce-scatter or an
// all-gather, and an all-gather of tokens a barrier.
// Source: Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024.
#include <algorithm>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

// One would do; with two the next tile is on its way while this one is taken in.
static constexpr int fifo_depth = 2;

// 1, .., N: each half of the next, rounded up.
static std::vector<int> skips_of(int ranks) {
    std::vector<int> skips = {ranks};
    while (skips.back() > 1) skips.push_back((skips.back() + 1) / 2);
    std::reverse(skips.begin(), skips.end());
    return skips;
}

Schedule halving_doubling_all_reduce(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks;
    if (ranks == 1) {
        Builder alone("halving_doubling", Collective::all_reduce, layout, {.chunks = 1});
        alone.block({}).copy({0}).finish();
        return alone.finish();
    }
    // The halves may join the same two ranks in the same direction: a channel each.
    Builder schedule("halving_doubling", Collective::all_reduce, layout,
                     {.channels = 2, .chunks = ranks, .fifo_depth = fifo_depth, .span = ranks / 2});
    const std::vector<int32_t> order = layout.host_major();
    const int here = layout.position();
    const auto rank_ahead = [&](int distance) { return order[size_t((here + distance + ranks) % ranks)]; };
    // Chunk c ends, complete, on the rank in place c.
    const auto chunk = [&](int distance) { return Chunk{0, here + distance, ranks}; };
    const std::vector<int> skips = skips_of(ranks);
    const int rounds = int(skips.size()) - 1;
    std::optional<Step> have;
    for (int round = rounds - 1; round >= 0; --round) {
        const int skip = skips[size_t(round)], count = skips[size_t(round) + 1] - skip;
        const Buffer held = have ? Buffer::output : Buffer::input;
        BlockBuilder block = schedule.block({.channel = 0, .source = rank_ahead(-skip), .target = rank_ahead(skip)});
        Step sent = block.span(count).send(chunk(skip)).from(held);
        if (have) sent.after(*have);
        // Of an odd number of chunks one is neither sent nor added to in the first round; partial sums live in the
        // output.
        if (!have && count < skip) block.copy(chunk(count));
        Step sum = block.span(count).recv_reduce_copy(chunk(0)).from(held);
        if (round == 0) sum.finish();
        have = sum;
    }
    for (int round = 0; round < rounds; ++round) {
        const int skip = skips[size_t(round)], count = skips[size_t(round) + 1] - skip;
        BlockBuilder block = schedule.block({.channel = 1, .source = rank_ahead(skip), .target = rank_ahead(-skip)});
        block.span(count).send(chunk(0)).from(Buffer::output).after(*have);
        have = block.span(count).recv(chunk(skip));
    }
    return schedule.finish();
}

namespace {

// The parts of ranks lie in the order of ranks, so here places are ranks.
struct Circulant {
    const Layout& layout;
    std::vector<int> skips = skips_of(layout.ranks);

    int rounds() const { return int(skips.size()) - 1; }
    int skip(int round) const { return skips[size_t(round)]; }
    int count(int round) const { return skips[size_t(round) + 1] - skip(round); }
    int ahead(int distance) const { return (layout.rank + distance + layout.ranks) % layout.ranks; }
    Chunk chunk(int distance) const { return {0, layout.rank + distance, layout.ranks}; }
    Builder builder(const char* name, Collective collective) const {
        const bool alone = layout.ranks == 1;
        return {name,
                collective,
                layout,
                {.chunks = layout.ranks, .fifo_depth = alone ? 0 : fifo_depth, .span = alone ? 1 : layout.ranks / 2}};
    }
};

Schedule doubling(const char* name, Collective collective, const Layout& layout) {
    const Circulant circulant{layout};
    Builder schedule = circulant.builder(name, collective);
    Step have = schedule.block({}).copy({layout.rank});
    for (int round = 0; round < circulant.rounds(); ++round) {
        const int skip = circulant.skip(round), count = circulant.count(round);
        BlockBuilder block = schedule.block({.source = circulant.ahead(skip), .target = circulant.ahead(-skip)});
        block.span(count).send(circulant.chunk(0)).from(Buffer::output).after(have);
        have = block.span(count).recv(circulant.chunk(skip));
    }
    return schedule.finish();
}

}  // namespace

Schedule halving_doubling_all_gather(const Layout& layout, const Parameters&) {
    return doubling("halving_doubling", Collective::all_gather, layout);
}
Schedule dissemination_barrier(const Layout& layout, const Parameters&) {
    return doubling("dissemination", Collective::barrier, layout);
}

Schedule halving_doubling_reduce_scatter(const Layout& layout, const Parameters&) {
    const Circulant circulant{layout};
    Builder schedule = circulant.builder("halving_doubling", Collective::reduce_scatter);
    if (layout.ranks == 1) {
        schedule.block({}).copy({0}).finish();
        return schedule.finish();
    }
    // What the next tile's first round writes over the last round of this one has read: its second step.
    const Dependency last_reading{circulant.rounds() - 1, 1, 1};
    std::optional<Step> have;
    for (int round = circulant.rounds() - 1; round >= 0; --round) {
        const int skip = circulant.skip(round), count = circulant.count(round);
        const bool first = !have, last = round == 0;
        const Buffer held = first ? Buffer::input : Buffer::scratch;
        BlockBuilder block = schedule.block({.source = circulant.ahead(-skip), .target = circulant.ahead(skip)});
        Step sent = block.span(count).send(circulant.chunk(skip)).from(held);
        if (!first) sent.after(*have);
        // Of an odd number of chunks one is neither sent nor added to in the first round.
        const bool odd = first && count < skip;
        if (odd) block.copy(circulant.chunk(count)).to(Buffer::scratch).after(last_reading);
        Step sum = block.span(count).recv_reduce_copy(circulant.chunk(0)).from(held);
        if (last)
            sum.finish();
        else
            sum.to(Buffer::scratch);
        if (first && !odd && !last) sum.after(last_reading);
        have = sum;
    }
    return schedule.finish();
}

static double half_us(const Layout& layout, const LinkCosts& costs, size_t bytes, Network::Coming coming) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const std::vector<int> skips = skips_of(layout.ranks);
    Network::Rounds rounds;
    for (size_t round = 0; round + 1 < skips.size(); ++round)
        network.add_round(rounds, skips[round], double(bytes) * (skips[round + 1] - skips[round]) / layout.ranks,
                          coming);
    return Network::overlapped_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}
double halving_doubling_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return half_us(layout, costs, bytes, Network::Coming::finished);
}
double halving_doubling_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return half_us(layout, costs, bytes, Network::Coming::parts);
}

// Of half of the ranks a message holds a line each at least, and a slot holds 128 KiB.
const char* too_many_parts(const Layout& layout) {
    return layout.ranks > 4096 ? "sends half of all parts in a message: at most 4096 ranks" : nullptr;
}

double halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const std::vector<int> skips = skips_of(layout.ranks);
    Network::Rounds rounds;
    for (size_t round = 0; round + 1 < skips.size(); ++round)
        for (const auto coming : {Network::Coming::parts, Network::Coming::finished})
            network.add_round(rounds, skips[round], double(bytes) * (skips[round + 1] - skips[round]) / layout.ranks,
                              coming);
    return Network::overlapped_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}

}  // namespace weft
