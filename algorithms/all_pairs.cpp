// All-pairs all-reduce: each rank sends every other rank the chunk that the other one sums, then sends its own sum to
// all. It moves 2(N-1)/N of the buffer, the least possible, in two rounds, but in 2(N-1) messages: for few ranks and
// medium messages. Each half by itself is a reduce-scatter or an all-gather. An all-to-all is one round without sums.
// Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005, where
// it is the pairwise reduce-scatter; Microsoft's MSCCL calls it all pairs.
#include <optional>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// One slot is enough. With two, the next tile travels while the receiver distributes this one.
static constexpr int all_pairs_fifo_depth = 2;

// Every rank has a connection with slots to every other rank.
static constexpr int all_pairs_ranks_most = 32;

Schedule all_pairs_all_reduce(const Layout& layout, const Parameters&) {
    const int ranks = layout.ranks;
    Builder schedule("all_pairs", Collective::all_reduce, layout,
                     {.chunks = ranks, .fifo_depth = ranks > 1 ? all_pairs_fifo_depth : 0});
    if (ranks == 1) {
        schedule.block({}).copy({0}).finish();
        return schedule.finish();
    }
    const RankOrder order = layout.host_major();
    const int here = layout.position();
    // The rank at position c sums chunk c.
    const auto chunk = [&](int distance) { return Chunk{0, here + distance, ranks}; };
    std::vector<BlockBuilder> blocks;  // by distance
    for (int distance = 1; distance < ranks; ++distance) {
        const int peer = order[size_t((here + distance) % ranks)];
        blocks.push_back(schedule.block({.source = peer, .target = peer}));
    }
    std::optional<StepBuilder> sum;
    for (int distance = 1; distance < ranks; ++distance) {
        BlockBuilder& block = blocks[size_t(distance - 1)];
        block.send(chunk(distance));
        StepBuilder next = block.recv_reduce_copy(chunk(0)).from(sum ? Buffer::output : Buffer::input);
        if (sum) next.after(*sum);
        sum = next;
    }
    sum->finish();
    for (int distance = 1; distance < ranks; ++distance) {
        BlockBuilder& block = blocks[size_t(distance - 1)];
        StepBuilder sent = block.send(chunk(0)).from(Buffer::output);
        if (distance < ranks - 1) sent.after(*sum);  // otherwise the send follows the sum in the same block
        block.recv(chunk(distance));
    }
    return schedule.finish();
}

namespace {

// One block per peer sends to it and receives from it. Blocks go by distance, so that not all ranks send to one rank
// first.
class PairSchedule {
  public:
    PairSchedule(Collective collective, const Layout& layout)
        : order_(layout.host_major()),
          here_(layout.position()),
          schedule_("all_pairs", collective, layout,
                    {.chunks = layout.ranks, .fifo_depth = layout.ranks > 1 ? all_pairs_fifo_depth : 0}) {}

    // Calls emit(block, peer) for each.
    template <class Emit>
    void each(Emit&& emit) {
        const int ranks = int(order_.size());
        for (int distance = 1; distance < ranks; ++distance) {
            const int peer = order_[size_t((here_ + distance) % ranks)];
            emit(schedule_.block({.source = peer, .target = peer}), peer);
        }
    }
    BlockBuilder block() { return schedule_.block({}); }
    Schedule finish() { return schedule_.finish(); }

  private:
    RankOrder order_;
    int here_;
    Builder schedule_;
};

}  // namespace

Schedule all_pairs_all_gather(const Layout& layout, const Parameters&) {
    PairSchedule pairs(Collective::all_gather, layout);
    pairs.each([&](BlockBuilder block, int peer) {
        block.send({layout.rank});
        block.recv({peer});
    });
    pairs.block().copy({layout.rank});  // while the other parts travel
    return pairs.finish();
}

Schedule all_pairs_all_to_all(const Layout& layout, const Parameters&) {
    PairSchedule pairs(Collective::all_to_all, layout);
    pairs.each([&](BlockBuilder block, int peer) {
        block.send({peer});
        block.recv({peer});
    });
    pairs.block().copy({layout.rank});
    return pairs.finish();
}

Schedule all_pairs_reduce_scatter(const Layout& layout, const Parameters&) {
    PairSchedule pairs(Collective::reduce_scatter, layout);
    if (layout.ranks == 1) pairs.block().copy({0}).finish();
    std::optional<StepBuilder> sum;
    pairs.each([&](BlockBuilder block, int peer) {
        block.send({peer});
        StepBuilder next = block.recv_reduce_copy({layout.rank}).from(sum ? Buffer::output : Buffer::input);
        if (sum) next.after(*sum);
        sum = next;
    });
    if (sum) sum->finish();
    return pairs.finish();
}

// On one host, data that is only copied is zero-copy, or is copied twice.
static double zero_copy_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const size_t part = bytes / size_t(layout.ranks);
    const double own = 1.0 / layout.ranks;
    const double streams = own + (1 - own) * costs.message_streams(part);
    return costs.meeting_us() + costs.skew_us + (layout.ranks - 1) * Network(layout, costs, bytes).turns_us() +
           streams * costs.stream_us(bytes, 2 * bytes);
}

// The per-message overheads of a rank follow each other: on the processor that also reduces, or on the one that runs
// the proxy for kernels.
static void add_ends(Network::Rounds& rounds, const LinkCosts& costs, double ends_us) {
    if (costs.net_by_kernels)
        rounds.link_us = std::max(rounds.link_us, ends_us);
    else
        rounds.latency_us += ends_us;
}

static double one_round_us(const Layout& layout, const LinkCosts& costs, size_t bytes, Network::ReceivedData coming) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    Network::Rounds rounds;
    for (int distance = 1; distance < layout.ranks; ++distance)
        network.add_round(rounds, distance, double(bytes) / layout.ranks, coming);
    // Copies run in parallel; sums are made one after the other.
    rounds.handling_us *= coming == Network::ReceivedData::finished ? costs.side_by_side : (1 + costs.side_by_side) / 2;
    rounds.latency_us = network.message_us(network.hosts() > 1);
    rounds.longest_wait_us = 0;  // the next tile is sent without a wait for what arrives
    add_ends(rounds, costs, (2 * network.remote_peers() - 1) * network.end_us() * costs.ranks_per_core);
    return network.overlapped_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}
double all_pairs_gathered_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.host_count() == 1 && layout.ranks > 1) return zero_copy_us(layout, costs, bytes);
    return one_round_us(layout, costs, bytes, Network::ReceivedData::finished);
}
double all_pairs_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return one_round_us(layout, costs, bytes, Network::ReceivedData::parts);
}

double all_pairs_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    Network::Rounds rounds;
    for (int distance = 1; distance < layout.ranks; ++distance)
        for (const auto coming : {Network::ReceivedData::parts, Network::ReceivedData::finished})
            network.add_round(rounds, distance, double(bytes) / layout.ranks, coming);
    // One of the four passes over the data is the sum.
    rounds.handling_us *= (1 + 3 * costs.side_by_side) / 4;
    // The messages of a half travel in parallel, but the processor sends and receives them one after the other. Three
    // of these overheads overlap with the latencies.
    rounds.latency_us = 2 * network.message_us(network.hosts() > 1);
    add_ends(rounds, costs, (4 * network.remote_peers() - 3) * network.end_us() * costs.ranks_per_core);
    return network.overlapped_us(rounds, double(bytes), 2 * double(costs.net_slot_bytes));
}

const char* too_many_pairs(const Layout& layout) {
    return layout.ranks > all_pairs_ranks_most ? "needs a connection to every rank: at most 32 ranks" : nullptr;
}
const char* too_many_pairs_here(const Layout& layout) {
    return layout.host_count() == 1 ? too_many_pairs(layout) : too_many_of_a_host(layout);
}

}  // namespace weft::internal
