// Sums in rank order over connections, for calls that want this order. As in all pairs, each rank sends every other
// rank the chunk that the other one sums. The receiver keeps all contributions, adds them in rank order and rounds
// once. So the result has the same bits as on a flag block, for any placement of the ranks. It needs a tile's worth of
// scratch more than all pairs; the root of a reduce receives every rank's whole tile.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005, for the
// exchange (its pairwise reduce-scatter).
// Balaji and Kimpe, "On the reproducibility of MPI reduction operations", 2013. They gather first, so that results are
// the same everywhere.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

namespace {

// One slot is enough. With two, the next tile travels while the rank sums this one.
constexpr int rank_order_fifo_depth = 2;

// A block for the exchange with each peer, and the block that sums: cell r of scratch holds rank r's contribution.
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

    // With each peer, by distance, so that not all ranks send to one rank first: calls emit(block, peer).
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
    // Into the peer's cell. The previous tile's sum has been read from it, as this block has sent that sum.
    void take(BlockBuilder& block, int peer, Chunk chunk) { arrivals_.push_back(block.recv(chunk).to_cell(peer)); }
    // The same if the block does not send the sum: waits for that sum, the last step of sum_.
    void take_after_sum(BlockBuilder& block, int peer, Chunk chunk) {
        take(block, peer, chunk);
        arrivals_.back().after(Dependency{0, layout_.ranks - 2, 1});
    }
    // A step waits for at most one other step, so the last of the waits is the sum itself.
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

// The sums wait for the last arrival, so they do not overlap with latencies.
static double summed_us(const LinkCosts& costs, double bytes) {
    return 2 * costs.stream_us(size_t(bytes), size_t(2 * bytes));
}
double rank_order_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return all_pairs_all_reduce_us(layout, costs, bytes) + summed_us(costs, double(bytes));
}
double rank_order_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return all_pairs_reduce_scatter_us(layout, costs, bytes) + summed_us(costs, double(bytes));
}
// The root receives N - 1 times the buffer.
double rank_order_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return linear_gather_us(layout, costs, bytes * size_t(layout.ranks)) +
           summed_us(costs, double(bytes) * layout.ranks);
}

}  // namespace weft::internal
