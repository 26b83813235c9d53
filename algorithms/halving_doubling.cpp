// Halving-doubling all-reduce for any number of ranks, for medium messages. In each round of the first half a rank
// sends half of the chunks that it still reduces to the rank at half of the remaining distance. The second half
// reverses this and doubles the finished chunks. It needs 2 ceil(log2 N) messages and 2(N-1)/N of the buffer, the least
// possible.
// This is the circulant form, which needs no special case if N is no power of two. The skips are N, N/2, .. 1, rounded
// up, and every message is one cyclic range of chunks. Each half by itself is a reduce-scatter or an all-gather; an
// all-gather of tokens is a barrier.
// Bruck's all-gather, and recursive doubling for powers of two, differ only in the skips. They have the same rounds and
// bytes, and therefore no rows of their own.
// Source: Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024.
#include <numeric>
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
static constexpr int halving_doubling_fifo_depth = 2;

namespace {

// Chunk c ends, complete, on the rank at position c.
class Circulant {
  public:
    Circulant(const Layout& layout, RankOrder order, int here)
        : layout_(layout), order_(std::move(order)), here_(here), skips_(circulant_skips(layout.ranks)) {}
    static Circulant by_hosts(const Layout& layout) { return {layout, layout.host_major(), layout.position()}; }
    // In rank order, as the parts lie in the buffer.
    static Circulant by_ranks(const Layout& layout) { return {layout, RankOrder(layout.ranks), layout.rank}; }

    Builder builder(const char* name, Collective collective, int channels = 1) const {
        const int ranks = layout_.ranks;
        if (ranks == 1) return {name, collective, layout_, {.chunks = 1}};
        return {name,
                collective,
                layout_,
                {.channels = channels, .chunks = ranks, .fifo_depth = halving_doubling_fifo_depth, .span = ranks / 2}};
    }

    // The reduce-scatter half; partial sums go to `partial`.
    StepBuilder halve(Builder& schedule, Buffer partial) const {
        const int rounds = int(skips_.size()) - 1;
        if (rounds == 0) return schedule.block({}).copy({0}).finish();
        // The next tile's first round overwrites the scratch that this tile's last round reads in its second step.
        const Dependency last_reading{rounds - 1, 1, 1};
        std::optional<StepBuilder> have;
        for (int round = rounds - 1; round >= 0; --round) {
            const bool first = !have, last = round == 0;
            const Buffer held = first ? Buffer::input : partial;
            BlockBuilder block = schedule.block({.source = ahead(-skip(round)), .target = ahead(skip(round))});
            StepBuilder sent = block.span(count(round)).send(chunk(skip(round))).from(held);
            if (!first) sent.after(*have);
            // If the number of chunks is odd, one is neither sent nor reduced in the first round.
            const bool odd = first && count(round) < skip(round);
            std::optional<StepBuilder> begun;
            if (odd) begun = block.copy(chunk(count(round))).to(partial);
            StepBuilder sum = block.span(count(round)).recv_reduce_copy(chunk(0)).from(held);
            if (last)
                sum.finish();
            else
                sum.to(partial);
            if (!begun && first && !last) begun = sum;
            if (begun && partial == Buffer::scratch) begun->after(last_reading);
            have = sum;
        }
        return *have;
    }
    // The all-gather half: sends each rank's chunk, complete after `have`, to all.
    void double_up(Builder& schedule, StepBuilder have, int channel = 0) const {
        for (int round = 0; round + 1 < int(skips_.size()); ++round) {
            BlockBuilder block =
                schedule.block({.channel = channel, .source = ahead(skip(round)), .target = ahead(-skip(round))});
            block.span(count(round)).send(chunk(0)).from(Buffer::output).after(have);
            have = block.span(count(round)).recv(chunk(skip(round)));
        }
    }

  private:
    int skip(int round) const { return skips_[size_t(round)]; }
    int count(int round) const { return skips_[size_t(round) + 1] - skip(round); }
    int ahead(int distance) const { return order_[size_t((here_ + distance + layout_.ranks) % layout_.ranks)]; }
    Chunk chunk(int distance) const { return {0, here_ + distance, layout_.ranks}; }

    const Layout& layout_;
    RankOrder order_;
    int here_;
    std::vector<int> skips_;
};

Schedule doubling(const char* name, Collective collective, const Layout& layout) {
    const Circulant circulant = Circulant::by_ranks(layout);
    Builder schedule = circulant.builder(name, collective);
    circulant.double_up(schedule, schedule.block({}).copy({layout.rank}));
    return schedule.finish();
}

}  // namespace

Schedule halving_doubling_all_reduce(const Layout& layout, const Parameters&) {
    const Circulant circulant = Circulant::by_hosts(layout);
    // The halves may join the same two ranks in the same direction: one channel each.
    Builder schedule = circulant.builder("halving_doubling", Collective::all_reduce, 2);
    const StepBuilder summed = circulant.halve(schedule, Buffer::output);
    circulant.double_up(schedule, summed, 1);
    return schedule.finish();
}
Schedule halving_doubling_reduce_scatter(const Layout& layout, const Parameters&) {
    const Circulant circulant = Circulant::by_ranks(layout);
    Builder schedule = circulant.builder("halving_doubling", Collective::reduce_scatter);
    circulant.halve(schedule, Buffer::scratch);
    return schedule.finish();
}
Schedule halving_doubling_all_gather(const Layout& layout, const Parameters&) {
    return doubling("halving_doubling", Collective::all_gather, layout);
}
Schedule dissemination_barrier(const Layout& layout, const Parameters&) {
    return doubling("dissemination", Collective::barrier, layout);
}

// Cost of the rounds of these halves, in order.
static double rounds_us(const Layout& layout, const LinkCosts& costs, size_t bytes,
                        std::initializer_list<Network::ReceivedData> halves, bool by_scratch = false) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const std::vector<int> skips = circulant_skips(layout.ranks);
    Network::Rounds rounds;
    for (size_t round = 0; round + 1 < skips.size(); ++round)
        for (const Network::ReceivedData coming : halves)
            network.add_round(rounds, skips[round], double(bytes) * (skips[round + 1] - skips[round]) / layout.ranks,
                              coming);
    const double tile = 2 * double(costs.net_slot_bytes);
    return by_scratch ? network.by_scratch_us(rounds, double(bytes), tile)
                      : network.overlapped_us(rounds, double(bytes), tile);
}
double halving_doubling_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rounds_us(layout, costs, bytes, {Network::ReceivedData::parts, Network::ReceivedData::finished});
}
double halving_doubling_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rounds_us(layout, costs, bytes, {Network::ReceivedData::finished});
}
double halving_doubling_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return rounds_us(layout, costs, bytes, {Network::ReceivedData::parts}, true);
}

// A message holds the parts of half of the ranks, each at least one line; a slot holds 128 KiB.
const char* too_many_parts(const Layout& layout) {
    return layout.ranks > 4096 ? "sends half of all parts in a message: at most 4096 ranks" : nullptr;
}

}  // namespace weft::internal
