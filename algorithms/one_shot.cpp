// One-shot all-reduce, for small messages: each rank stages its whole buffer on the flag block and sums all staged
// buffers in rank order. One wait; each rank reads N times the buffer. The other collectives follow the same pattern: a
// source stages, all ranks wait once, a destination copies.
// Source: the all-gather and local sum of Bar-Noy, Kipnis and Schieber, `An optimal algorithm for computing census
// functions in message-passing systems`, 1993. One write to shared memory replaces its rounds.
#include "algorithms/algorithms.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

Schedule one_shot_all_reduce(const Layout& layout, const Parameters&) {
    const bool alone = layout.ranks == 1;
    Builder schedule("one_shot", Collective::all_reduce, layout,
                     {.chunks = 1, .shared_ranks = alone ? std::vector<int32_t>() : layout.local_ranks()});
    BlockBuilder block = schedule.block({});
    if (alone)
        block.copy({0}).finish();
    else
        block.one_shot({0}).finish();
    return schedule.finish();
}

namespace {

// One block over the flag block of all ranks: it stages, synchronizes and copies. A single rank copies its own input.
class OneShot {
  public:
    OneShot(Collective collective, const Layout& layout, int chunks, int root = -1)
        : rank_(layout.rank),
          ranks_(layout.ranks),
          schedule_("one_shot", collective, layout,
                    {.chunks = chunks,
                     .shared_ranks = layout.ranks == 1 ? std::vector<int32_t>() : layout.local_ranks(),
                     .root = root}),
          block_(schedule_.block({})) {}

    BlockBuilder& block() { return block_; }
    // Every other rank, or its part. Each rank starts behind itself, so that not all ranks read one slot at once.
    Index others() const { return Index{0, rank_ + 1, ranks_}; }
    void stage_others() {
        if (ranks_ > 1) block_.span(ranks_ - 1).copy(others()).to(Buffer::slot);
    }
    void stage(Chunk chunk) {
        if (ranks_ > 1) block_.copy(chunk).to(Buffer::slot);
    }
    void meet() {
        if (ranks_ == 1) return;
        block_.post(0);
        block_.wait(0);
    }
    // The own part is copied to its place between post and wait, as no other rank needs it.
    void meet_and_keep(Chunk own) {
        if (ranks_ > 1) block_.post(0);
        block_.copy(own);
        if (ranks_ > 1) block_.wait(0);
    }
    void meet_and_keep() { meet_and_keep({rank_}); }
    void take_others() { block_.loop(ranks_ - 1).copy(others().then(1)).from(Buffer::slot).of(others().then(1)); }
    Schedule finish() { return schedule_.finish(); }

  private:
    int rank_, ranks_;
    Builder schedule_;
    BlockBuilder block_;
};

Schedule everybody_hears_everybody(Collective collective, const Layout& layout) {
    OneShot shot(collective, layout, layout.ranks);
    shot.stage({layout.rank});
    shot.meet_and_keep();
    shot.take_others();
    return shot.finish();
}

}  // namespace

Schedule one_shot_all_gather(const Layout& layout, const Parameters&) {
    return everybody_hears_everybody(Collective::all_gather, layout);
}
Schedule one_shot_barrier(const Layout& layout, const Parameters&) {
    return everybody_hears_everybody(Collective::barrier, layout);
}

Schedule one_shot_reduce_scatter(const Layout& layout, const Parameters&) {
    OneShot shot(Collective::reduce_scatter, layout, layout.ranks);
    shot.stage_others();
    shot.meet();
    if (layout.ranks == 1)
        shot.block().copy({0}).finish();
    else
        shot.block().reduce({layout.rank}).finish();
    return shot.finish();
}

Schedule one_shot_broadcast(const Layout& layout, const Parameters& parameters) {
    OneShot shot(Collective::broadcast, layout, 1, parameters.root);
    if (layout.rank == parameters.root) {
        shot.stage({0});
        shot.meet_and_keep({0});
    } else {
        shot.meet();
        shot.block().copy({0}).from(Buffer::slot).of({parameters.root});
    }
    return shot.finish();
}

Schedule one_shot_reduce(const Layout& layout, const Parameters& parameters) {
    OneShot shot(Collective::reduce, layout, 1, parameters.root);
    if (layout.rank != parameters.root) shot.stage({0});
    shot.meet();
    if (layout.ranks == 1)
        shot.block().copy({0}).finish();
    else if (layout.rank == parameters.root)
        shot.block().reduce({0}).finish();
    return shot.finish();
}

Schedule one_shot_all_to_all(const Layout& layout, const Parameters&) {
    OneShot shot(Collective::all_to_all, layout, layout.ranks);
    shot.stage_others();
    shot.meet_and_keep();
    const Index others = shot.others().then(1);
    shot.block().loop(layout.ranks - 1).copy({layout.rank}).from(Buffer::slot).of(others).into(others);
    return shot.finish();
}

Schedule one_shot_gather(const Layout& layout, const Parameters& parameters) {
    OneShot shot(Collective::gather, layout, layout.ranks, parameters.root);
    if (layout.rank == parameters.root) {
        shot.meet_and_keep();
        shot.take_others();
    } else {
        shot.stage({layout.rank});
        shot.meet();
    }
    return shot.finish();
}

Schedule one_shot_scatter(const Layout& layout, const Parameters& parameters) {
    OneShot shot(Collective::scatter, layout, layout.ranks, parameters.root);
    if (layout.rank == parameters.root) {
        shot.stage_others();
        shot.meet_and_keep();
    } else {
        shot.meet();
        shot.block().copy({layout.rank}).from(Buffer::slot).of({parameters.root});
    }
    return shot.finish();
}

// One wait per tile. `streams`: passes over a buffer of `bytes` in all by each rank; `root_streams`: by the root alone.
static double one_wait_us(const Layout& layout, const LinkCosts& costs, size_t bytes, double streams,
                          double root_streams = 0) {
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    // If only the root sends or receives, all ranks still wait for all: one signal more than one direction needs.
    const double back = root_streams > 0 ? costs.signal_us : 0;
    return back + costs.meeting_us() * double(costs.tiles(bytes)) + streams * costs.stream_us(bytes, 2 * bytes) +
           root_streams * alone.stream_us(bytes, 2 * bytes);
}

double one_shot_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, 1 + 1.0 / layout.ranks);
}
// Passes over the buffer if each rank reads from a slot of every other rank: more ranks are further apart.
static double passes_from_all(const Layout& layout) { return 1.6 + 0.1 * layout.ranks; }
double one_shot_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, passes_from_all(layout));
}
double one_shot_all_to_all_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, passes_from_all(layout));
}
double one_shot_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, 1, 1);
}
double one_shot_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, 1, 1 + 0.4 * layout.ranks);
}
double one_shot_from_one_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_wait_us(layout, costs, bytes, 1.0 / layout.ranks, 1);
}

double one_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    // Staging, the own input and the result cost the full price. Staged data of other ranks costs less than half: these
    // reads overlap, and data that ranks of the same core staged is in its cache.
    const double streams = 2.2 + 0.4 * layout.ranks;
    return costs.meeting_us() * costs.tiles(bytes) + streams * costs.stream_us(bytes, (2 + layout.ranks) * bytes);
}

}  // namespace weft::internal
