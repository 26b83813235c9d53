// Bruck's all-to-all, for tiny parts of many ranks. In round w each rank sends w ranks ahead every part whose distance
// has bit w: its own parts and those it forwards. It takes log2 N messages, each of half of the buffer.
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", 1997. Here waiting parts lie at their final position, so no rotation is needed at either
// end.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver unpacks this one.
static constexpr int bruck_fifo_depth = 2;

// The number of distances below `ranks` that have this bit.
static int count_with(int bit, int ranks) { return ranks / (2 * bit) * bit + std::max(0, ranks % (2 * bit) - bit); }

Schedule bruck_all_to_all(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks, rank = layout.rank;
    Builder schedule("bruck", Collective::all_to_all, layout,
                     {.chunks = ranks, .fifo_depth = ranks > 1 ? bruck_fifo_depth : 0, .span = std::max(1, ranks / 2)});
    // Parts from other ranks lie in the output, at the position of the rank that is behind by the distance they travel.
    // That is the final position of a part that has arrived. Parts that have not left yet are in the input.
    const auto ahead = [&](int distance) { return Chunk{0, (rank + distance) % ranks, ranks}; };
    const auto behind = [&](int distance) { return Chunk{0, (rank - distance + ranks) % ranks, ranks}; };
    schedule.block({}).copy({rank});
    std::optional<StepBuilder> done, first;
    for (int bit = 1; bit < ranks; bit *= 2) {
        const int count = count_with(bit, ranks);
        // Distances with that bit, grouped by their lower bits: each calls emit(first distance, how many, how many
        // before).
        const auto each = [&](auto&& emit) {
            int before = 0;
            for (int low = 0; low < bit && bit + low < ranks; ++low) {
                const int times = (ranks - bit - low + 2 * bit - 1) / (2 * bit);
                emit(bit + low, times, before);
                before += times;
            }
        };
        BlockBuilder block = schedule.block({.source = behind(bit).at(0), .target = ahead(bit).at(0)});
        each([&](int distance, int times, int before) {
            const bool leaves = distance == bit;
            StepBuilder step = block.loop(times)
                                   .copy(leaves ? ahead(distance).then(2 * bit) : behind(distance).then(-2 * bit))
                                   .from(leaves ? Buffer::input : Buffer::output)
                                   .to(Buffer::scratch)
                                   .into(Chunk{0, before, ranks}.then(1));
            if (leaves && done) step.after(*done);
            if (!first) first = step;
        });
        block.span(count).send({0}).from(Buffer::scratch);
        block.span(count).recv({count}).to(Buffer::scratch);
        each([&](int distance, int times, int before) {
            done = block.loop(times)
                       .copy(Chunk{0, count + before, ranks}.then(1))
                       .from(Buffer::scratch)
                       .into(behind(distance).then(-2 * bit));
        });
    }
    // The next tile's first round begins when this one's last has ended; with two ranks both are in the same block.
    if (ranks > 2) first->after(*done, 1);
    return schedule.finish();
}

double bruck_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    Network::Rounds rounds;
    for (int bit = 1; bit < layout.ranks; bit *= 2) {
        const double sent = double(bytes) * count_with(bit, layout.ranks) / layout.ranks;
        network.add_round(rounds, bit, sent, Network::ReceivedData::finished);
        // Packing and unpacking of the message.
        rounds.handling_us += 2 * costs.stream_us(size_t(sent), 3 * bytes);
    }
    return Network::in_turn_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}

}  // namespace weft::internal
