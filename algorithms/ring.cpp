// Ring all-reduce, for large messages: reduce-scatter once round the ring, then all-gather once round the ring. Each
// half sends (N-1)/N of the buffer, the least possible, in N-1 steps. Broadcast and reduce open the ring at the root: a
// pipelined chain.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include <algorithm>
#include <cmath>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft::internal {

// Two slots per connection are necessary and sufficient. A rank has sent at most one chunk more than it has received,
// so at most N chunks are in flight on the ring's N connections. With one slot each, all slots may be full while every
// rank holds a chunk to forward: a deadlock. With two, N chunks fill at most half of the slots, so some connection that
// holds a chunk leads to a rank that can forward it.
static constexpr int ring_fifo_depth = 2;

Schedule ring_all_reduce(const Layout& layout, const Parameters& parameters) {
    const int ranks = layout.ranks;
    Builder schedule("ring", Collective::all_reduce, layout,
                     {.channels = parameters.channels,
                      .chunks = parameters.channels * ranks,
                      .fifo_depth = ranks > 1 ? ring_fifo_depth : 0});
    for (int channel = 0; channel < parameters.channels; ++channel) {
        if (ranks == 1) {
            schedule.block({.channel = channel}).copy({channel}).finish();
            continue;
        }
        const Ring ring = layout.ring(channel);
        BlockBuilder block = schedule.block({.channel = channel, .source = ring.previous, .target = ring.next});
        // The chunk owned by the rank `distance` places ahead on this channel's ring.
        auto chunk = [&](int distance) { return Chunk{channel * ranks, ring.position + distance, ranks}; };
        // Reduce-scatter: partial sums travel round the ring and end, complete, on the chunk's owner.
        block.send(chunk(-1));
        block.loop(ranks - 2).recv_reduce_send(chunk(-2).then(-1));
        block.recv_reduce_copy_send(chunk(0)).finish();
        // All-gather: the finished chunks travel the same way, and each rank keeps a copy.
        block.loop(ranks - 2).recv_copy_send(chunk(-1).then(-1));
        block.recv(chunk(+1));
    }
    return schedule.finish();
}

namespace {

// For a collective with parts: the chunk of the rank `distance` places ahead on this channel. The ring visits ranks
// host by host. If ranks are distributed over hosts cyclically, or the order is given, chunk numbers jump and loops are
// unrolled.
class PartsOnRing {
  public:
    PartsOnRing(const Layout& layout, int channels, int channel)
        : order_(layout.ring_order(channel)),
          position_(layout.ring(channel).position),
          channels_(channels),
          channel_(channel) {
        even_ = order_.by_rank();
    }
    Chunk chunk(int distance) const {
        const int ranks = int(order_.size()), place = ((position_ + distance) % ranks + ranks) % ranks;
        return {0, order_[size_t(place)] * channels_ + channel_, ranks * channels_};
    }
    // Calls emit(times, chunk) for `count` chunks: the first is that of `distance`, each next one is one place further
    // behind.
    template <class Emit>
    void backwards(int distance, int count, Emit&& emit) const {
        if (even_)
            emit(count, chunk(distance).then(-channels_));
        else
            for (int step = 0; step < count; ++step) emit(1, chunk(distance - step));
    }

  private:
    RankOrder order_;
    int position_, channels_, channel_;
    bool even_;
};

Builder parted_ring(Collective collective, const Layout& layout, int channels) {
    return {"ring",
            collective,
            layout,
            {.channels = channels,
             .chunks = channels * layout.ranks,
             .fifo_depth = layout.ranks > 1 ? ring_fifo_depth : 0}};
}

Builder chain(Collective collective, const Layout& layout, const Parameters& parameters) {
    return {"ring",
            collective,
            layout,
            {.channels = parameters.channels,
             .chunks = parameters.channels,
             .fifo_depth = layout.ranks > 1 ? ring_fifo_depth : 0,
             .root = parameters.root}};
}

}  // namespace

Schedule ring_all_gather(const Layout& layout, const Parameters& parameters) {
    Builder schedule = parted_ring(Collective::all_gather, layout, parameters.channels);
    for (int channel = 0; channel < parameters.channels; ++channel) {
        const PartsOnRing parts(layout, parameters.channels, channel);
        if (layout.ranks == 1) {
            schedule.block({.channel = channel}).copy(parts.chunk(0));
            continue;
        }
        const Ring ring = layout.ring(channel);
        BlockBuilder block = schedule.block({.channel = channel, .source = ring.previous, .target = ring.next});
        block.send(parts.chunk(0));
        block.copy(parts.chunk(0));
        parts.backwards(-1, layout.ranks - 2, [&](int times, Chunk chunk) { block.loop(times).recv_copy_send(chunk); });
        block.recv(parts.chunk(+1));
    }
    return schedule.finish();
}

Schedule ring_reduce_scatter(const Layout& layout, const Parameters& parameters) {
    Builder schedule = parted_ring(Collective::reduce_scatter, layout, parameters.channels);
    for (int channel = 0; channel < parameters.channels; ++channel) {
        const PartsOnRing parts(layout, parameters.channels, channel);
        if (layout.ranks == 1) {
            schedule.block({.channel = channel}).copy(parts.chunk(0)).finish();
            continue;
        }
        const Ring ring = layout.ring(channel);
        BlockBuilder block = schedule.block({.channel = channel, .source = ring.previous, .target = ring.next});
        block.send(parts.chunk(-1));
        parts.backwards(-2, layout.ranks - 2,
                        [&](int times, Chunk chunk) { block.loop(times).recv_reduce_send(chunk); });
        block.recv_reduce_copy(parts.chunk(0)).finish();
    }
    return schedule.finish();
}

Schedule ring_broadcast(const Layout& layout, const Parameters& parameters) {
    Builder schedule = chain(Collective::broadcast, layout, parameters);
    for (int channel = 0; channel < parameters.channels; ++channel) {
        const Ring ring = layout.ring(channel);
        const bool first = layout.rank == parameters.root, last = ring.next == parameters.root;
        BlockBuilder block = schedule.block({.channel = channel,
                                             .source = first ? -1 : ring.previous,
                                             .target = last || layout.ranks == 1 ? -1 : ring.next});
        if (first) {
            if (layout.ranks > 1) block.send({channel});
            block.copy({channel});
        } else if (last) {
            block.recv({channel});
        } else {
            block.recv_copy_send({channel});
        }
    }
    return schedule.finish();
}

Schedule ring_reduce(const Layout& layout, const Parameters& parameters) {
    Builder schedule = chain(Collective::reduce, layout, parameters);
    for (int channel = 0; channel < parameters.channels; ++channel) {
        const Ring ring = layout.ring(channel);
        const bool last = layout.rank == parameters.root, first = ring.previous == parameters.root;
        if (layout.ranks == 1) {
            schedule.block({.channel = channel}).copy({channel}).finish();
            continue;
        }
        BlockBuilder block =
            schedule.block({.channel = channel, .source = first ? -1 : ring.previous, .target = last ? -1 : ring.next});
        if (last)
            block.recv_reduce_copy({channel}).finish();
        else if (first)
            block.send({channel});
        else
            block.recv_reduce_send({channel});
    }
    return schedule.finish();
}

// One half of the all-reduce.
static double half_ring_us(const Layout& layout, const LinkCosts& costs, size_t bytes, double streams) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const double ranks = layout.ranks;
    const Network network(layout, costs, bytes);
    if (network.hosts() > 1) return ring_all_reduce_us(layout, costs, bytes) / 2;
    const double hops = (ranks - 1) * (costs.meeting_us() * double(costs.tiles(bytes)) + costs.skew_us);
    // The user's buffer is read from memory once; the other streams are slots, which stay in the caches.
    return hops + costs.stream_us(bytes, 2 * bytes) + (streams - 1) * costs.stream_us(bytes, 0);
}

double ring_all_gather_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return half_ring_us(layout, costs, bytes, 2);
}
double ring_reduce_scatter_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    return half_ring_us(layout, costs, bytes, (2.0 * layout.ranks - 1) / layout.ranks);
}

// With B tiles on a chain of N ranks, the last byte arrives after B + N - 2 hops of a tile each.
static double hop_us(const Network& network, double tile) {
    const bool crosses = network.hosts() > 1;
    return network.one_way_us(crosses) + (crosses ? network.link_us(tile) : 0) + network.handling_us(tile) * 2 / 3;
}

size_t ring_chain_tile_bytes(const Layout& layout, const LinkCosts& fitted, size_t bytes) {
    constexpr size_t least = 16 << 10;
    const LinkCosts& costs = fitted.cutting();
    const Network network(layout, costs, bytes);
    const double overhead_us = hop_us(network, 0);
    const double per_byte = (hop_us(network, 1 << 20) - overhead_us) / (1 << 20);
    const double tile = std::sqrt(double(bytes) * overhead_us / (std::max(1, layout.ranks - 2) * per_byte));
    return std::clamp(size_t(tile) / 64 * 64, least, costs.net_slot_bytes);
}

double ring_chain_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const double tile = double(std::min(bytes, ring_chain_tile_bytes(layout, costs, bytes)));
    const double tiles = bytes == 0 ? 1 : std::ceil(double(bytes) / tile);
    const Network network(layout, costs, bytes);
    if (!network.machines()) return network.slot_back_us() + (tiles + layout.ranks - 2) * hop_us(network, tile);
    // A tile makes one hop per further host. After that, links and processors are never idle.
    const double handling = network.handling_us(tile) * 2 / 3, link = network.link_us(tile);
    const double first = (network.hosts() - 1) * (network.one_way_us(true) + link) +
                         (layout.ranks - network.hosts()) * network.message_us(false) + (layout.ranks - 1) * handling;
    return first + (tiles - 1) * std::max(link, network.end_us() * costs.ranks_per_core + handling);
}

// A rank forwards a tile and turns to the next tile or call. The case of one machine, whose processors are the links,
// is fitted to batches of calls.
double ring_broadcast_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const Network network(layout, costs, bytes);
    if (layout.ranks <= 2 || network.hosts() < layout.ranks || network.machines())
        return ring_chain_us(layout, costs, bytes);
    LinkCosts alone = costs;
    alone.ranks_per_core = 1;
    const Network at_work(layout, alone, bytes);
    const double tile = double(std::min(bytes, ring_chain_tile_bytes(layout, costs, bytes)));
    const double tiles = bytes == 0 ? 1 : std::ceil(double(bytes) / tile);
    const double hops = layout.ranks - 1, work = at_work.link_us(tile) + at_work.handling_us(tile) * 2 / 3;
    // While the first tile travels down the chain, two ranks have work, and neither waits for its core.
    constexpr double awaited = 0.8;  // an idle rank is already polling when the tile arrives
    const double first = hops * (awaited * at_work.message_us(true) + work);
    // After that all hops work in parallel, on as many processors as there are.
    const double processors = double(layout.ranks) / costs.ranks_per_core;
    return first + (tiles - 1) * hops * (costs.net_message_us / 2 + work) / processors;
}

double ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const double ranks = layout.ranks;
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs, bytes);
    if (network.hosts() > 1) {
        // Per tile, every chunk goes round twice, over hops between hosts and hops within. Each host's link carries
        // each chunk once a round. Links that are not processors work in parallel: either a round waits for its own
        // chunks' bytes alone, or the links are never idle.
        const double round =
            network.hosts() * network.message_us(true) + (ranks - network.hosts()) * network.message_us(false);
        const double tile_bytes = double(costs.net_slot_bytes) * ranks;
        const double tiles = std::max(1.0, std::ceil(double(bytes) / tile_bytes));
        const double moved = 2 * (ranks - 1) / ranks;
        const double link = network.link_us(double(bytes)), handling = network.handling_us(double(bytes));
        if (!network.machines()) return moved * (tiles * round + link + handling);
        return moved * std::max(link, tiles * round + link * network.hosts() / ranks + handling);
    }
    // Reads and writes of an N-th: send 1, recv_reduce_send and recv_copy_send 2 each, the complete sum 3, recv 1.
    const double streams = (4 * ranks - 3) / ranks;
    // A step cannot begin before the previous rank has ended its own: 2(N-1) hops per tile, each of which waits for its
    // turn on its core.
    const double hops = 2 * (ranks - 1) * (costs.meeting_us() * double(costs.tiles(bytes)) + costs.sums_skew_us());
    return hops + streams * costs.stream_us(bytes, 2 * bytes);
}

}  // namespace weft::internal
