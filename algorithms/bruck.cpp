// Bruck's all-to-all: in round w everybody sends w ranks ahead all that is for ranks whose distance has bit w, its own
// and what others gave it to pass on. log2 N messages, each of half of the buffer: for tiny parts of many ranks.
// Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all communications in multiport
// message-passing systems", 1997; what waits lies where it will end, so that nothing is turned at either end.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One would do; with two the next tile is on its way while this one is taken in.
static constexpr int bruck_fifo_depth = 2;

// Of the distances below `ranks` so many have that bit.
static int count_with(int bit, int ranks) { return ranks / (2 * bit) * bit + std::max(0, ranks % (2 * bit) - bit); }

Schedule bruck_all_to_all(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks, rank = layout.rank;
    Builder schedule("bruck", Collective::all_to_all, layout,
                     {.chunks = ranks, .fifo_depth = ranks > 1 ? bruck_fifo_depth : 0, .span = std::max(1, ranks / 2)});
    // What others gave this rank lies in the output, in the place of the rank that is as far behind as its way is long:
    // where it belongs if it has arrived. What has not left yet is in the input.
    const auto ahead = [&](int distance) { return Chunk{0, (rank + distance) % ranks, ranks}; };
    const auto behind = [&](int distance) { return Chunk{0, (rank - distance + ranks) % ranks, ranks}; };
    schedule.block({}).copy({rank});
    std::optional<StepBuilder> done, first;
    for (int bit = 1; bit < ranks; bit *= 2) {
        const int count = count_with(bit, ranks);
        // Distances with that bit, by what is below it: each calls emit(first distance, how many, how many before).
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
    // The next tile's first round begins where this one's last has ended; of two ranks they are the same block.
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
        // Into the message and out of it.
        rounds.handling_us += 2 * costs.stream_us(size_t(sent), 3 * bytes);
    }
    return Network::in_turn_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}

}  // namespace weft::internal
