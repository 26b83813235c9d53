// Ring all-reduce: every chunk goes round the ring once to be summed and once more to be handed out.
// Each rank sends 2(N-1)/N of the buffer, the least possible, in 2(N-1) steps, many: for large messages.
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
#include <cmath>

#include "algorithms/algorithms.hpp"
#include "algorithms/network.hpp"
#include "src/schedule/builder.hpp"

namespace weft {

// Two slots a connection are needed and enough. A rank has sent at most one chunk more than it has received, so at most
// N chunks are in flight on the ring's N connections. With one slot each, all may be full while every rank holds a
// chunk to pass on, and nobody can. With two, N chunks fill at most half of the slots, so some connection that holds a
// chunk leads to a rank with room ahead of it.
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
        // The chunk that belongs to the rank `distance` places ahead of us on this channel's ring.
        auto chunk = [&](int distance) { return Chunk{channel * ranks, ring.position + distance, ranks}; };
        // Reduce-scatter: partial sums walk the ring and end, complete, on the rank that owns the chunk.
        block.send(chunk(-1));
        block.loop(ranks - 2).recv_reduce_send(chunk(-2).then(-1));
        block.recv_reduce_copy_send(chunk(0)).finish();
        // All-gather: the finished chunks walk the same way and stay where they pass.
        block.loop(ranks - 2).recv_copy_send(chunk(-1).then(-1));
        block.recv(chunk(+1));
    }
    return schedule.finish();
}

double ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes) {
    const double ranks = layout.ranks;
    if (layout.ranks == 1) return costs.stream_us(bytes, 2 * bytes);
    const Network network(layout, costs);
    if (network.hosts() > 1) {
        // Tile by tile, every chunk goes round twice, over the hops between hosts and the others, and each host's link
        // carries each chunk once a round.
        const double round =
            network.hosts() * network.message_us(true) + (ranks - network.hosts()) * network.message_us(false);
        const double tile_bytes = double(costs.net_slot_bytes) * ranks;
        const double tiles = std::max(1.0, std::ceil(double(bytes) / tile_bytes));
        const double moved = 2 * (ranks - 1) / ranks;
        return moved * (tiles * round + network.link_us(double(bytes)) + network.handling_us(double(bytes)));
    }
    // Reads and writes of an N-th: send 1, recv_reduce_send and recv_copy_send 2 each, the complete sum 3, recv 1.
    const double streams = (4 * ranks - 3) / ranks;
    // A step cannot begin before the rank behind has ended its own: 2(N-1) hops a tile, and each waits its turn on its
    // core.
    const double hops = 2 * (ranks - 1) * (costs.meeting_us() * double(costs.tiles(bytes)) + costs.skew_us);
    return hops + streams * costs.stream_us(bytes, 2 * bytes);
}

}  // namespace weft
