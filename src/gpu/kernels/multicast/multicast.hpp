// multicast.hpp: collectives whose data pass the switch once: it reduces what a rank loads, and hands out what a rank
// stores. Of an all-reduce each link carries 1 + 1/n times the message, where peer_two_shot has 2(n-1)/n times.
// Messages pass through staging memory that all ranks have mapped as one multicast object. Tiles, barriers and the order
// of staging are those of PeerTiles. Accesses to the object have up to 16 bytes. The pieces of blocks are multiples of
// 64 bytes, so the last access of a message stays within its piece of staging memory.
// If what the switch accesses lies in windows behind it, at the same place on all ranks, nothing is staged. The host
// offers only whole and aligned 16 bytes, because an access past the message would hit memory of the user.
// The switch reduces in an order of its own, so deterministic communicators do not use this kernel.
// Source: NVIDIA, "PTX ISA", multimem; two steps as in peer_two_shot.hpp.
#pragma once
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/multicast/multimem.hpp"
#include "src/gpu/kernels/peer_tiles.hpp"

namespace weft::internal::cuda {

// A part of a pack at any address.
template <int size>
WEFT_DEVICE_COLD Pack<size> load_part(const std::byte* source, size_t bytes) {
    Pack<size> pack = {};
    WEFT_UNROLL
    for (int i = 0; i < size; ++i)
        if (size_t(i) < bytes) pack.words[i / 4] |= uint32_t(source[i]) << 8 * (i % 4);
    return pack;
}
template <int size>
WEFT_DEVICE_COLD void store_part(std::byte* target, Pack<size> pack, size_t bytes) {
    WEFT_UNROLL
    for (int i = 0; i < size; ++i)
        if (size_t(i) < bytes) target[i] = std::byte(pack.words[i / 4] >> 8 * (i % 4));
}

// Calls load(offset) for several packs of `bytes` bytes, then store(offset, pack) for each. So many loads are in flight.
template <int size, class Load, class Store>
WEFT_DEVICE void move_packs(const Team& team, size_t bytes, Load&& load, Store&& store) {
    constexpr int batch = size == 16 ? 4 : 8;
    const size_t stride = size_t(team.threads) * size;
    size_t at = size_t(team.thread) * size;
    WEFT_NO_UNROLL
    for (; at + (batch - 1) * stride < bytes; at += batch * stride) {
        Pack<size> packs[batch];
        WEFT_UNROLL
        for (int u = 0; u < batch; ++u) packs[u] = load(at + size_t(u) * stride);
        WEFT_UNROLL
        for (int u = 0; u < batch; ++u) store(at + size_t(u) * stride, packs[u]);
    }
    WEFT_NO_UNROLL
    for (; at < bytes; at += stride) store(at, load(at));
}

// Reduces `bytes` bytes, for all ranks or for this rank alone.
template <weftDataType_t type, weftRedOp_t op>
WEFT_DEVICE void reduce_by_switch(const Team& team, std::byte* target, const std::byte* source, size_t bytes,
                                  bool for_all) {
    constexpr int size = multimem_bytes<type>;
    const size_t whole = for_all ? bytes : misalignment(target, size) == 0 ? bytes / size * size : 0;
    move_packs<size>(
        team, whole, [&](size_t at) { return multimem_reduce<type, op>(source + at); },
        [&](size_t at, const Pack<size>& pack) {
            if (for_all)
                multimem_store(target + at, pack);
            else
                store_pack(target + at, pack);
        });
    WEFT_NO_UNROLL
    for (size_t at = whole + size_t(team.thread) * size; at < bytes; at += size_t(team.threads) * size)
        store_part(target + at, multimem_reduce<type, op>(source + at), bytes - at);
}
// The reduction of the call, for bytes as above. Signed and unsigned integers, and the bits of all, share a kernel.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void reduce_by_switch(const Team& team, const KernelArguments& a, std::byte* target,
                                  const std::byte* source, size_t bytes, bool for_all) {
    const auto run = [&]<weftDataType_t of, weftRedOp_t op>() {
        reduce_by_switch<of, op>(team, target, source, bytes, for_all);
    };
    constexpr weftDataType_t unsigned_type = type == weftInt32 ? weftUint32 : weftUint64;
    if constexpr (adds) {
        run.template operator()<type, weftSum>();
    } else if (is_integer(type) && a.unsigned_elements && !is_bitwise(a.op)) {
        if constexpr (is_integer(type))
            a.op == weftMax ? run.template operator()<unsigned_type, weftMax>()
                            : run.template operator()<unsigned_type, weftMin>();
    } else if (a.op == weftMax) {
        run.template operator()<type, weftMax>();
    } else if (a.op == weftMin) {
        run.template operator()<type, weftMin>();
    } else if constexpr (type == weftInt64) {
        if (a.op == weftBand)
            run.template operator()<type, weftBand>();
        else if (a.op == weftBor)
            run.template operator()<type, weftBor>();
        else
            run.template operator()<type, weftBxor>();
    }
}

WEFT_DEVICE void hand_out(const Team& team, std::byte* address, const std::byte* source, size_t bytes) {
    const size_t whole = misalignment(source, 16) == 0 ? bytes / 16 * 16 : 0;
    move_packs<16>(
        team, whole, [&](size_t at) { return load_pack<16>(source + at); },
        [&](size_t at, const Pack<16>& pack) { multimem_store(address + at, pack); });
    WEFT_NO_UNROLL
    for (size_t at = whole + size_t(team.thread) * 16; at < bytes; at += size_t(team.threads) * 16)
        multimem_store(address + at, load_part<16>(source + at, bytes - at));
}

// All-reduce and reduce-scatter. A tile of staging memory has the share of each rank, or a part for each rank.
template <weftDataType_t type, bool adds>
WEFT_DEVICE void multicast_reduces(const Team& team, const KernelArguments& a) {
    const bool scatters = a.send_stride != 0;
    PeerTiles memory(team, a, scatters ? 1 : a.ranks, scatters ? a.ranks : 1, true);
    std::byte* const staging = a.outputs[a.rank];
    const auto piece_for = [&](const PeerTile& tile, int rank) { return piece_of(tile, scatters ? 0 : rank, team); };
    const auto place_for = [&](const PeerTile& tile, int rank) {
        return tile.place + piece_for(tile, rank).tile_offset + (scatters ? size_t(rank) * tile.bytes : 0);
    };
    const auto stage = [&](const Team& copiers, const PeerTile& tile) {
        copy_rows<1, true>(copiers, a.ranks, [&](int rank) {
            const ChunkRange piece = piece_for(tile, rank);
            return Row{staging + place_for(tile, rank),
                       a.send + size_t(rank) * a.send_stride + tile.offset + piece.tile_offset, piece.bytes};
        });
        fence_of_aliases();
    };
    const auto work = [&](const Team& workers, const PeerTile& tile) {
        const ChunkRange own = piece_for(tile, a.rank);
        const size_t offset = tile.offset + own.tile_offset;
        const bool staged = memory.staged();
        const std::byte* const source =
            staged ? a.scratch + place_for(tile, a.rank) : a.switched_send + size_t(a.rank) * a.send_stride + offset;
        std::byte* const target = scatters ? a.receive + offset
                                  : staged ? a.scratch + place_for(tile, a.rank)
                                           : a.switched_receive + offset;
        reduce_by_switch<type, adds>(workers, a, target, source, own.bytes, !scatters);
        fence_of_aliases();
    };
    const auto unstage = [&](const Team& copiers, const PeerTile& tile) {
        copy_rows<1, true>(copiers, scatters ? 0 : a.ranks, [&](int rank) {
            const ChunkRange piece = piece_for(tile, rank);
            return Row{a.receive + tile.offset + piece.tile_offset, staging + place_for(tile, rank), piece.bytes};
        });
    };
    memory.run(stage, work, unstage);
}

// All-gather and broadcast. The sources store into all ranks' staging memory.
WEFT_DEVICE void multicast_moves(const Team& team, const KernelArguments& a) {
    const bool gathers = a.receive_stride != 0;
    PeerTiles memory(team, a, 1, gathers ? a.ranks : 1, true);
    const auto place_of = [&](const PeerTile& tile, const ChunkRange& piece, int source) {
        return tile.place + piece.tile_offset + (gathers ? size_t(source) * tile.bytes : 0);
    };
    const auto work = [&](const Team& workers, const PeerTile& tile) {
        if (!is_one_of(a.source_rank, a.rank)) return;
        const ChunkRange piece = piece_of(tile, 0, team);
        const size_t offset = tile.offset + piece.tile_offset;
        std::byte* const target = memory.staged() ? a.scratch + place_of(tile, piece, a.rank)
                                                  : a.switched_receive + size_t(a.rank) * a.receive_stride + offset;
        hand_out(workers, target, a.send + offset, piece.bytes);
        fence_of_aliases();
    };
    const auto unstage = [&](const Team& copiers, const PeerTile& tile) {
        const ChunkRange piece = piece_of(tile, 0, team);
        const size_t offset = tile.offset + piece.tile_offset;
        copy_rows<2, false>(copiers, gathers ? a.ranks : 1, [&](int number) {
            const int source = gathers ? number : a.source_rank;
            std::byte* const to = a.receive + size_t(number) * a.receive_stride + offset;
            // A rank has its own data, often in place.
            return source == a.rank ? Row{to, a.send + offset, piece.bytes}
                                    : Row{to, a.outputs[a.rank] + place_of(tile, piece, source), piece.bytes};
        });
    };
    // Stages nothing: the next stores of sources through the object come after this rank's loads by its own address.
    const auto stage = [](const Team&, const PeerTile&) { fence_of_aliases(); };
    memory.run(stage, work, unstage);
}

template <weftDataType_t type, bool adds>
WEFT_DEVICE void multicast(const Team& team, const KernelArguments& a) {
    static_assert(has_entry_point(Body::multicast, type, adds));
    fence_of_aliases();  // earlier kernels have written windows by their own addresses
    if constexpr (type == multicast_word)
        multicast_moves(team, a);
    else
        multicast_reduces<type, adds>(team, a);
}

}  // namespace weft::internal::cuda
