// One-shot all-reduce: everybody puts its whole buffer on the board and sums what all have put there, in rank order.
// One wait, and N times the buffer read by each rank: for small messages.
// Source: the all-gather and local sum of Bar-Noy, Kipnis and Schieber, "An optimal algorithm for computing census
// functions in message-passing systems", 1993, with one write to shared memory in place of its rounds.
#include "algorithms/algorithms.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

Schedule one_shot_all_reduce(const Layout& layout, const Parameters&) {
    const bool alone = layout.ranks == 1;
    Builder schedule("one_shot", Collective::all_reduce, layout,
                     {.chunks = 1, .board = alone ? std::vector<int32_t>() : layout.local_ranks()});
    BlockBuilder block = schedule.block({});
    if (alone)
        block.copy({0}).finish();
    else
        block.one_shot({0}).finish();
    return schedule.finish();
}

double one_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    // Staging, the own input and the result at full price; what others staged at less than half: those reads overlap,
    // and what ranks of the same core staged is in its cache. Measured for 2 to 8 ranks on 2 cores.
    const double streams = 2.2 + 0.4 * layout.ranks;
    return costs.meeting_us() * costs.tiles(bytes) + streams * costs.stream_us(bytes, (2 + layout.ranks) * bytes);
}

}  // namespace weft
