// peer_one_shot.hpp: collectives whose full buffer has parts, in one step through peers' memory. Each destination reads
// its data from each source and places or combines it in rank order. (n-1)/n of the full buffer crosses each link, the
// minimum. For messages from some hundred kilobytes on.
#pragma once
#include "src/gpu/kernels/peer_tiles.hpp"

namespace weft::internal::cuda {

template <weftDataType_t type, bool adds>
WEFT_DEVICE void peer_one_shot(const Team& team, const KernelArguments& a) {
    // element_of(): only sums of integers also serve collectives without a reduction.
    constexpr bool moves = adds && std::is_integral_v<AccumulatorOf<type>>;
    const Reducer<type, adds> reducer(a);
    // Staging memory holds one piece per destination, a tile apart; one piece in total if all get the same.
    const int different = a.send_stride != 0 ? a.ranks : 1;
    PeerTiles memory(team, a, 1, different);
    const auto stage = [&](const Team& copiers, const PeerTile& tile) {
        const ChunkRange piece = piece_of(tile, 0, team);
        copy_input_rows<type, adds>(
            copiers, reducer, is_one_of(a.source_rank, a.rank) ? different : 0, [&](int destination) {
                return Row{a.outputs[a.rank] + tile.place + size_t(destination) * tile.bytes + piece.tile_offset,
                           a.send + size_t(destination) * a.send_stride + tile.offset + piece.tile_offset, piece.bytes};
            });
    };
    const auto work = [&](const Team& workers, const PeerTile& tile) {
        if (!is_one_of(a.destination_rank, a.rank)) return;
        const ChunkRange piece = piece_of(tile, 0, team);
        const size_t mine = size_t(different > 1 ? a.rank : 0),
                     from = tile.place + mine * (memory.staged() ? tile.bytes : a.send_stride) + piece.tile_offset;
        std::byte* const to = a.receive + tile.offset + piece.tile_offset;
        if (!moves || a.reduces) {
            std::byte* const target = to - from;  // all streams use the same offsets
            const Streams<ranks_max, 1> streams{memory.inputs(), a.ranks, &target, 1, 0, true};
            reduce_range<type, adds>(workers, reducer, streams, from, from + piece.bytes);
            return;
        }
        if constexpr (moves) {
            // Each rank starts at a different source, so that not all read from one.
            const int sources = a.source_rank < 0 ? a.ranks : 1;
            constexpr int units = sizeof(ElementOf<type>) > 1 ? 2 : 1;  // bytes are rare, and their sums take registers
            copy_rows<units, false>(workers, sources, [&](int distance) {
                const int turned = a.rank + distance < a.ranks ? a.rank + distance : a.rank + distance - a.ranks,
                          source = a.source_rank < 0 ? turned : a.source_rank;
                return Row{to + size_t(source) * a.receive_stride, memory.inputs()[source] + from, piece.bytes};
            });
        }
    };
    memory.run(stage, work, [](const Team&, const PeerTile&) {});
}

}  // namespace weft::internal::cuda
