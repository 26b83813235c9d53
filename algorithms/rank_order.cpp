// Sums in rank order over connections: as all pairs, everybody sends each other rank the chunk that this one sums up,
// but what comes is kept until all of it is there, and then added in rank order and rounded once, so that the result
// has the same bits as on a flag block, whatever the hosts. A tile's worth of scratch more than all pairs; of a reduce the
// root takes everybody's whole tile. For calls that want that order: where it does not matter others are no slower.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005, for the
// exchange (its pairwise reduce-scatter); Balaji and Kimpe, "On the reproducibility of MPI reduction operations", 2013,
// for gathering first as what makes results the same everywhere.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

// One would do; with two the next tile is on its way while this one is summed up.
constexpr int rank_order_fifo_depth = 2;

// A rank's exchange with each other one, a block each, and the block that sums up: cell r of scratch is rank r's.
class OrderedExchange {
  public:
    OrderedExchange(Collective collective, const Layout& layout, int chunks, int root = -1)
        : layout_(layout),
          order_(layout.host_major()),
          here_(layout.position()),
          schedule_("rank_order", collective, layout,
                    {.chunks = chunks,
                     .fifo_depth = layout.ranks > 1 ? rank_order_fifo_depth : 0,
                     .root = root,
                     .scratch = layout.ranks > 1 ? layout.ranks : 0}),
          sum_(schedule_.block({})) {}

    // With each peer by distance, so that not all send to one: calls emit(block, peer).
    template <class Emit>
    void each(Emit&& emit) {
        for (int distance = 1; distance < layout_.ranks; ++distance)
            emit(distance, order_[size_t((here_ + distance) % layout_.ranks)]);
    }
    BlockBuilder& block(int peer, bool receives = true, bool sends = true) {
        blocks_.push_back(schedule_.block({.source = receives ? peer : -1, .target = sends ? peer : -1}));
        return blocks_.back();
    }
    BlockBuilder& block_of(int distance) { return blocks_[size_t(distance - 1)]; }
    // Into the peer's cell, which the sum of the tile before has left free: this block has sent that.
    void take(BlockBuilder& block, int peer, Chunk chunk) { arrivals_.push_back(block.recv(chunk).to_cell(peer)); }
    // The same where the block does not send it: once that sum, the last step of sum_, is made.
    void take_after_sum(BlockBuilder& block, int peer, Chunk chunk) {
        take(block, peer, chunk);
        arrivals_.back().after(Dependency{0, layout_.ranks - 2, 1});
    }
    // All have come: one step waits for one of them, so the last is the sum itself.
    StepBuilder sum_up(Chunk chunk) {
        if (layout_.ranks == 1) return sum_.copy(chunk).finish();
        for (size_t i = 0; i + 1 < arrivals_.size(); ++i) sum_.nop().after(arrivals_[i]);
        return sum_.reduce(chunk).from(Buffer::scratch).after(arrivals_.back()).finish();
    }
    Schedule finish() { return schedule_.finish(); }

  private:
    const Layout& layout_;
    RankOrder order_;
    int here_;
    Builder schedule_;
    BlockBuilder sum_;
    std::vector<BlockBuilder> blocks_;
    std::vector<StepBuilder> arrivals_;
};

}  // namespace

Schedule rank_order_all_reduce(const Layout& layout, const Parameters&) {
    OrderedExchange exchange(Collective::all_reduce, layout, layout.ranks);
    exchange.each([&](int, int peer) {
        BlockBuilder& block = exchange.block(peer);
        block.send({peer});
        exchange.take(block, peer, {layout.rank});
    });
    const StepBuilder sum = exchange.sum_up({layout.rank});
    exchange.each([&](int distance, int peer) {
        BlockBuilder& block = exchange.block_of(distance);
        block.send({layout.rank}).from(Buffer::output).after(sum);
        block.recv({peer});
    });
    return exchange.finish();
}

Schedule rank_order_reduce_scatter(const Layout& layout, const Parameters&) {
    OrderedExchange exchange(Collective::reduce_scatter, layout, layout.ranks);
    exchange.each([&](int, int peer) {
        BlockBuilder& block = exchange.block(peer);
        block.send({peer});
        exchange.take_after_sum(block, peer, {layout.rank});
    });
    exchange.sum_up({layout.rank});
    return exchange.finish();
}

Schedule rank_order_reduce(const Layout& layout, const Parameters& parameters) {
    OrderedExchange exchange(Collective::reduce, layout, 1, parameters.root);
    if (layout.rank != parameters.root) {
        exchange.block(parameters.root, false).send({0});
        return exchange.finish();
    }
    exchange.each([&](int, int peer) { exchange.take_after_sum(exchange.block(peer, true, false), peer, {0}); });
    exchange.sum_up({0});
    return exchange.finish();
}

// The sums wait for what comes last: nothing of them hides in the latencies.
static double summed_us(const LinkCosts& costs, double bytes) {
    return 2 * costs.stream_us(size_t(bytes), size_t(2 * bytes));
}
double rank_order_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return all_pairs_all_reduce_us(layout, costs, bytes) + summed_us(costs, double(bytes));
}
double rank_order_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return all_pairs_reduce_scatter_us(layout, costs, bytes) + summed_us(costs, double(bytes));
}
// The root takes N - 1 times the buffer.
double rank_order_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return linear_gather_us(layout, costs, bytes * size_t(layout.ranks)) +
           summed_us(costs, double(bytes) * layout.ranks);
}

}  // namespace weft::internal
