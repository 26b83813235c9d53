// Two-shot all-reduce, for all but small messages in shared memory: rank c sums chunk c from all ranks' slots in rank
// order, and all ranks copy the sum from there. Two waits; each rank moves 2(N-1)/N of the buffer. In a reduce only the
// root copies.
// Source: reduce-scatter and all-gather by direct exchange, as in Rabenseifner, "Optimization of collective reduction
// operations", 2004. Each is one round, because every rank reads every other rank's memory.
#include "algorithms/algorithms.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

Schedule two_shot_all_reduce(const Layout& layout, const Parameters&) {
    const bool alone = layout.ranks == 1;
    Builder schedule("two_shot", Collective::all_reduce, layout,
                     {.chunks = layout.ranks, .shared_ranks = alone ? std::vector<int32_t>() : layout.local_ranks()});
    BlockBuilder block = schedule.block({});
    if (alone)
        block.copy({0}).finish();
    else
        block.two_shot({layout.rank}).finish();
    return schedule.finish();
}

Schedule two_shot_reduce(const Layout& layout, const Parameters& parameters) {
    const int rank = layout.rank, ranks = layout.ranks;
    const bool takes = rank == parameters.root;
    Builder schedule("two_shot", Collective::reduce, layout,
                     {.chunks = ranks,
                      .shared_ranks = ranks == 1 ? std::vector<int32_t>() : layout.local_ranks(),
                      .root = parameters.root});
    BlockBuilder block = schedule.block({});
    if (ranks == 1) {
        block.copy({0}).finish();
        return schedule.finish();
    }
    const Index others{0, rank + 1, ranks};
    block.span(ranks - 1).copy(others).to(Buffer::slot);
    block.post(0);
    block.wait(0);
    block.reduce({rank}).to(takes ? Buffer::output : Buffer::slot).finish();
    block.post(1);
    if (!takes) return schedule.finish();
    block.wait(1);
    block.loop(ranks - 1).copy(others.then(1)).from(Buffer::slot).of(others.then(1));
    return schedule.finish();
}

double two_shot_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const double waits = 2 * costs.meeting_us() * double(costs.tiles(bytes)) + costs.skew_us;
    return waits + 2 * costs.stream_us(bytes, 2 * bytes) + alone.stream_us(bytes, 2 * bytes);
}

double two_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const double ranks = layout.ranks;
    // The others' chunks are staged and copied out, N sources of an N-th are summed, and the sum is stored twice.
    const double streams = 2 * (ranks - 1) / ranks + 1 + 1 / ranks;
    // Two waits per tile. Skew between ranks costs once, because later tiles overlap.
    const double waits = 2 * costs.meeting_us() * double(costs.tiles(bytes)) + costs.sums_skew_us();
    return waits + streams * costs.stream_us(bytes, 2 * bytes);
}

}  // namespace weft::internal
