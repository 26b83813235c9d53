// peer_two_shot.hpp: all-reduce, reduce and broadcast in two steps through peers' memory. Each rank reduces its share
// of all sources' messages in rank order and writes the result to the destinations. Each link carries 2(n-1)/n of the
// message, and every element is added once. For messages from some hundred kilobytes on.
#pragma once
#include "src/gpu/kernels/kernel_end.hpp"
#include "src/gpu/kernels/peer_tiles.hpp"

namespace weft::internal::cuda {

template <weftDataType_t type, bool adds>
WEFT_DEVICE void peer_two_shot(const Team& team, const KernelArguments& a) {
    const Reducer<type, adds> reducer(a);
    PeerTiles memory(team, a, a.ranks, 1);
    // A rank's piece of a tile, between this rank's buffer and its staging memory.
    const auto stage = [&](const Team& copiers, const PeerTile& tile) {
        const int pieces = is_one_of(a.source_rank, a.rank) ? a.ranks : 0;
        copy_input_rows<type, adds>(copiers, reducer, pieces, [&](int rank) {
            const ChunkRange piece = piece_of(tile, rank, team);
            return Row{a.outputs[a.rank] + tile.place + piece.tile_offset, a.send + tile.offset + piece.tile_offset,
                       piece.bytes};
        });
    };
    const auto work = [&](const Team& workers, const PeerTile& tile) {
        const ChunkRange own = piece_of(tile, a.rank, team);
        const size_t begin = tile.place + own.tile_offset;
        const bool one_source = a.source_rank >= 0, one_destination = a.destination_rank >= 0;
        const Streams<ranks_max, ranks_max> streams{memory.inputs() + (one_source ? a.source_rank : 0),
                                                    one_source ? 1 : a.ranks,
                                                    memory.outputs() + (one_destination ? a.destination_rank : 0),
                                                    one_destination ? 1 : a.ranks,
                                                    one_destination ? 0 : a.rank,
                                                    true};
        reduce_range<type, adds>(workers, reducer, streams, begin, begin + own.bytes);
    };
    const auto unstage = [&](const Team& copiers, const PeerTile& tile) {
        const int pieces = is_one_of(a.destination_rank, a.rank) ? a.ranks : 0;
        copy_rows<1, true>(copiers, pieces, [&](int rank) {
            const ChunkRange piece = piece_of(tile, rank, team);
            return Row{a.receive + tile.offset + piece.tile_offset, a.outputs[a.rank] + tile.place + piece.tile_offset,
                       piece.bytes};
        });
    };
    memory.run(stage, work, unstage);
}

// Local to this rank: combines inputs[0] to inputs[ranks - 1], unscaled, into `receive`.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void local_reduce(const Team& team, const KernelArguments& a) {
    const Reducer<type, adds> reducer(a);
    std::byte* const target = a.receive;
    const Streams<ranks_max, 1> streams{a.inputs, a.ranks, &target, 1, 0, true};
    const ChunkRange piece = chunk_range(a.bytes, team.blocks, team.block, 1);
    reduce_range<type, adds>(team, reducer, streams, piece.tile_offset, piece.tile_offset + piece.bytes);
    report_end(team, a);
}

}  // namespace weft::internal::cuda
