// peer_two_shot.hpp: all-reduce in two steps through peers' memory: each rank combines its share of all messages and
// puts the result where everybody wants it; a barrier of blocks in front and one behind. 2(n-1)/n of the message
// through each link, every element added once, in rank order. For messages from some hundred kilobytes on. Messages
// that peers cannot reach go through staging memory, a tile at a time. Where they can, the kernels tell each other
// where, so that a captured graph and a call with other buffers need no agreement of the hosts.
#pragma once
#include "src/executor/cuda/meeting.hpp"
#include "src/executor/cuda/reduce.hpp"

namespace weft::cuda {

// Block b of rank r works on piece b of share r, and nobody but block b of the other ranks on the same memory; for that
// the bounds are those of a full tile, also in a shorter one, where blocks of the tile before may still be at work.
WEFT_DEVICE ChunkRange piece_of(size_t tile_bytes, size_t length, int ranks, int rank, const Team& team) {
    const ChunkRange share = chunk_range(tile_bytes, ranks, rank, 1);
    const ChunkRange piece = chunk_range(share.bytes, team.blocks, team.block, 1);
    const size_t begin = share.tile_offset + piece.tile_offset, end = begin + piece.bytes;
    if (begin >= length) return {length, 0};
    return {begin, (end < length ? end : length) - begin};
}

// Tells this block's peers where our buffers are, if they may use them; the barrier of entry comes next and makes it
// visible. A peer's block has read what we told before when we are here again: that was before its barrier of exit.
WEFT_DEVICE void offer_buffers(const Team& team, const KernelArguments& a) {
    for (int peer = team.thread; peer < a.ranks; peer += team.threads) {
        RankWords& theirs = *a.words[peer];
        theirs.offered_inputs[team.block][a.rank] = a.offered_send[peer];
        theirs.offered_outputs[team.block][a.rank] = a.offered_receive[peer];
    }
}
WEFT_DEVICE int offering_ranks(const Team& team, const KernelArguments& a) {
    int count = 0;
    for (int rank = 0; rank < a.ranks; ++rank) count += a.words[a.rank]->offered_outputs[team.block][rank] != nullptr;
    return count;
}

// The others' pieces of a tile, and ours, into our staging memory.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void stage(const Team& team, const KernelArguments& a, const Reducer<type, adds>& reducer,
                       size_t tile_bytes, size_t offset, size_t length) {
    for (int rank = 0; rank < a.ranks; ++rank) {
        const ChunkRange piece = piece_of(tile_bytes, length, a.ranks, rank, team);
        copy_input(team, reducer, a.outputs[a.rank] + piece.tile_offset, a.send + offset + piece.tile_offset,
                   piece.bytes);
    }
}

template <weftDataType_t type, bool adds>
WEFT_DEVICE void peer_two_shot(const Team& team, const KernelArguments& a) {
    const Reducer<type, adds> reducer(a);
    Meeting meeting(team, a);
    if (!meeting.begin()) return;
    const std::byte* const* inputs = a.inputs;
    std::byte* const* outputs = a.outputs;
    bool staged = a.tile_bytes != 0;
    uint64_t tiles = staged && a.bytes != 0 ? (a.bytes + a.tile_bytes - 1) / a.tile_bytes : 1;
    size_t tile_bytes = staged ? ((a.bytes + tiles - 1) / tiles + 63) / 64 * 64 : a.bytes;  // alike
    // Of the first tile.
    bool there = false, met = false;
    if (a.offers) {
        offer_buffers(team, a);
        // If nobody offers anything, no barrier was in vain.
        there = a.offered_receive[a.rank] == nullptr;
        if (there) stage(team, a, reducer, tile_bytes, 0, tile_length(a.bytes, tile_bytes, 0));
        if (!meeting.meet(Waiting::entry)) return;
        const int offering = offering_ranks(team, a);
        met = offering == 0 || offering == a.ranks;
        if (offering == a.ranks) {
            inputs = a.words[a.rank]->offered_inputs[team.block];
            outputs = a.words[a.rank]->offered_outputs[team.block];
            staged = false;
            tiles = 1;
            tile_bytes = a.bytes;
        }
    }
    for (uint64_t tile = 0; tile < tiles; ++tile) {
        const size_t offset = tile * tile_bytes, length = tile_length(a.bytes, tile_bytes, tile);
        meeting.at_tile(tile);
        const bool first = tile == 0;
        if (staged) {
            if (!(first && there)) stage(team, a, reducer, tile_bytes, offset, length);
            if (!(first && met) && !meeting.meet(Waiting::entry)) return;
        } else if (!met && !(meeting.announce() && meeting.await(Waiting::entry))) {
            return;
        }
        const ChunkRange own = piece_of(tile_bytes, length, a.ranks, a.rank, team);
        const Streams<ranks_max, ranks_max> streams{inputs, a.ranks, outputs, a.ranks, a.rank, true};
        reduce_range<type, adds>(team, reducer, streams, own.tile_offset, own.tile_offset + own.bytes);
        if (!meeting.meet(Waiting::exit)) return;
        if (!staged) break;
        for (int rank = 0; rank < a.ranks; ++rank) {
            const ChunkRange piece = piece_of(tile_bytes, length, a.ranks, rank, team);
            copy_range(team, a.receive + offset + piece.tile_offset, a.outputs[a.rank] + piece.tile_offset,
                       piece.bytes);
        }
    }
    meeting.leave();
}

// This rank alone: inputs[0] to inputs[ranks - 1], as they are, are combined into `receive`.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void local_reduce(const Team& team, const KernelArguments& a) {
    const Reducer<type, adds> reducer(a);
    std::byte* const target = a.receive;
    const Streams<ranks_max, 1> streams{a.inputs, a.ranks, &target, 1, 0, true};
    const ChunkRange piece = chunk_range(a.bytes, team.blocks, team.block, 1);
    reduce_range<type, adds>(team, reducer, streams, piece.tile_offset, piece.tile_offset + piece.bytes);
}

}  // namespace weft::cuda
