// Scatter and all-gather: a broadcast in two halves, for medium messages. A binomial tree sends each rank a chunk, and
// each inner rank those of its subtree. Then all ranks exchange what they have, doubling. About 2(N-1)/N of the buffer
// passes through each rank in 2 log2 N rounds; a tree alone sends the buffer log2 N times. No rank receives a chunk
// twice.
// Source: Barnett, Gupta, Payne, Shuler, van de Geijn and Watts, "Interprocessor collective communication library
// (InterCom)", 1994; the second half as in Traeff, "Optimal, Non-pipelined Reduce-scatter and Allreduce Algorithms",
// 2024.
#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "algorithms/patterns.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver processes this one.
static constexpr int scatter_all_gather_fifo_depth = 2;

namespace {

// The chunks that a rank has received, by distance of their owners ahead of it, and the arrivals that a send must wait
// for.
class Arrivals {
  public:
    // In the current block.
    void add(StepBuilder step, int first, int end) { all_.push_back({step, first, end, known_}); }
    void begin_block() { known_ = 0; }
    // Emits the sends of chunks of these distances. Later steps of the block follow the same arrivals, too.
    template <class Emit>
    void send(BlockBuilder& block, int first, int end, Emit&& emit) {
        unsigned needed = 0;
        for (size_t i = 0; i < all_.size(); ++i)
            if (all_[i].first < end && first < all_[i].end) needed |= 1u << i;
        known_ = needed;
        for (size_t i = 0; i < all_.size(); ++i)
            if (needed >> i & 1) known_ |= all_[i].known, needed &= ~all_[i].known;
        std::vector<StepBuilder> steps;
        for (size_t i = 0; i < all_.size(); ++i)
            if (needed >> i & 1) steps.push_back(all_[i].step);
        for (size_t i = 0; i + 1 < steps.size(); ++i) block.nop().after(steps[i]);
        StepBuilder sent = emit();
        if (!steps.empty()) sent.after(steps.back());
    }

  private:
    struct ReceivedChunk {
        StepBuilder step;
        int first, end;
        unsigned known;  // bits of the arrivals that precede it
    };
    std::vector<ReceivedChunk> all_;
    unsigned known_ = 0;  // the same for the block's next receive
};

}  // namespace

Schedule scatter_all_gather_broadcast(const Layout& layout, const Parameters& parameters) {
    const FromRoot order(layout, parameters.root);
    const int ranks = layout.ranks, here = order.here;
    const BinomialPosition tree{ranks, here};
    // The halves may join the same two ranks in the same direction: one channel each.
    Builder schedule("scatter_all_gather", Collective::broadcast, layout,
                     {.channels = ranks > 1 ? 2 : 1,
                      .chunks = ranks,
                      .fifo_depth = ranks > 1 ? scatter_all_gather_fifo_depth : 0,
                      .span = std::max(1, ranks / 2),
                      .root = parameters.root});
    // Chunk c belongs to the rank at position c. The root sends from its input, other ranks from their output.
    const bool top = here == 0;
    const Buffer held = top ? Buffer::input : Buffer::output;
    const int own = tree.size_of(here);
    Arrivals arrivals;
    if (top)
        schedule.block({}).span(ranks).copy({0});
    else
        arrivals.add(schedule.block({.source = order.rank(tree.parent())}).span(own).recv({here}), 0, own);
    for (const int child : tree.children()) {
        BlockBuilder block = schedule.block({.target = order.rank(child)});
        const int chunks = tree.size_of(child);
        arrivals.send(block, child - here, child - here + chunks,
                      [&] { return block.span(chunks).send({child}).from(held); });
    }
    const std::vector<int> skips = circulant_skips(ranks);
    for (size_t round = 0; round + 1 < skips.size(); ++round) {
        const int skip = skips[round], end = skips[round + 1];
        const int target = (here - skip + ranks) % ranks, source = (here + skip) % ranks;
        // From the first distance that the receiver lacks.
        const int sent_from = std::max(skip, tree.size_of(target)), taken_from = std::max(skip, own);
        const bool sends = sent_from < end, takes = taken_from < end;
        if (!sends && !takes) continue;
        BlockBuilder block = schedule.block(
            {.channel = 1, .source = takes ? order.rank(source) : -1, .target = sends ? order.rank(target) : -1});
        arrivals.begin_block();
        if (sends)
            arrivals.send(block, sent_from - skip, end - skip, [&] {
                return block.span(end - sent_from).send({0, target + sent_from, ranks}).from(held);
            });
        if (takes) arrivals.add(block.span(end - taken_from).recv({0, here + taken_from, ranks}), taken_from, end);
    }
    return schedule.finish();
}

double scatter_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    const std::vector<int> skips = circulant_skips(layout.ranks);
    Network::Rounds rounds;
    for (int distance = 1; distance < layout.ranks; distance *= 2)
        network.add_round(rounds, distance, double(bytes) * std::min(distance, layout.ranks - distance) / layout.ranks,
                          Network::ReceivedData::finished, std::max(1, layout.ranks / (2 * distance)));
    for (size_t round = 0; round + 1 < skips.size(); ++round)
        network.add_round(rounds, skips[round], double(bytes) * (skips[round + 1] - skips[round]) / layout.ranks,
                          Network::ReceivedData::finished);
    return network.overlapped_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}

// With more ranks two trees are faster at any size: their depth grows as the rounds of one half do.
const char* too_many_to_scatter(const Layout& layout) {
    return layout.ranks > 32 ? "is slower than two trees: at most 32 ranks" : nullptr;
}

}  // namespace weft::internal
