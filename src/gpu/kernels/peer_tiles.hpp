// peer_tiles.hpp: access to peers' memory from a kernel's blocks. If all ranks export their buffers, the blocks use
// them in place. Otherwise they use staging memory, one tile at a time. The block and its peers pass a barrier before
// the first tile and after each tile.
// Tiles alternate between two halves of the staging memory. The next tile is staged before the barrier that ends the
// current one, so there is one barrier per tile.
// The kernels exchange the addresses, so a captured graph or a call with other buffers needs no agreement of the hosts.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

// Block b of rank r works on piece b of share r, and only block b of other ranks uses that memory. So a shorter tile
// keeps a full tile's bounds: blocks may still work on the tile before.
WEFT_DEVICE ChunkRange piece_of(size_t tile_bytes, size_t length, int shares, int share_index, const Team& team) {
    const ChunkRange share = chunk_range(tile_bytes, shares, share_index, 1);
    const ChunkRange piece = chunk_range(share.bytes, team.blocks, team.block, 1);
    const size_t begin = share.tile_offset + piece.tile_offset, end = begin + piece.bytes;
    if (begin >= length) return {length, 0};
    return {begin, (end < length ? end : length) - begin};
}

struct PeerTile {
    size_t bytes;   // of a full tile
    size_t offset;  // in the message
    size_t length;
    size_t place;  // offset in staging memory; 0 if buffers are used in place
};

class PeerTiles {
  public:
    // pieces: how many pieces of a tile's size a rank stages per tile.
    WEFT_DEVICE PeerTiles(const Team& team, const KernelArguments& arguments, int pieces = 1)
        : team_(team),
          a_(arguments),
          barrier_(team, arguments),
          inputs_(arguments.inputs),
          outputs_(arguments.outputs),
          staged_(arguments.tile_bytes != 0) {
        tiles_ = staged_ && a_.bytes != 0 ? (a_.bytes + a_.tile_bytes - 1) / a_.tile_bytes : 1;
        tile_bytes_ = staged_ ? ((a_.bytes + tiles_ - 1) / tiles_ + 63) / 64 * 64 : a_.bytes;  // of equal size
        half_bytes_ = tile_bytes_ * size_t(pieces);
    }

    // Calls stage(tile) to fill this rank's staging memory, work(tile) when all peers have staged, and unstage(tile) to
    // take out the peers' results.
    template <class Stage, class Work, class Unstage>
    WEFT_DEVICE void run(Stage&& stage, Work&& work, Unstage&& unstage) {
        if (!barrier_.begin()) return;
        // State of the first tile.
        bool there = false, met = false;
        if (a_.exports_buffers) {
            export_addresses();
            // If no rank exports a buffer, this barrier already serves the staged tile.
            there = a_.exported_receive[a_.rank] == nullptr;
            if (there) stage(tile_of(0));
            if (!barrier_.sync(KernelWait::entry)) return;
            const int exporting = exporting_ranks();
            met = exporting == 0 || exporting == a_.ranks;
            if (exporting == a_.ranks) {
                inputs_ = a_.flags[a_.rank]->exported_inputs[team_.block];
                outputs_ = a_.flags[a_.rank]->exported_outputs[team_.block];
                staged_ = false;
                tiles_ = 1;
                tile_bytes_ = a_.bytes;
            }
        }
        if (!staged_) {
            if (!met) barrier_.announce();
            if (!met && !barrier_.await(KernelWait::entry)) return;
        } else {
            if (!there) stage(tile_of(0));
            if (!met && !barrier_.sync(KernelWait::entry)) return;
        }
        for (uint64_t tile = 0; tile < tiles_; ++tile) {
            barrier_.at_tile(tile);
            work(tile_of(tile));
            if (staged_ && tile + 1 < tiles_) {
                // Other threads of this block now write the half that its threads have unstaged since the last barrier.
                // If a buffer is laid out differently from staging memory, these threads differ.
                team_.barrier();
                stage(tile_of(tile + 1));
            }
            // A peer behind this barrier has read the old content of this half and has not started on the next.
            if (!barrier_.sync(KernelWait::exit)) return;
            if (staged_) unstage(tile_of(tile));
        }
        barrier_.leave();
    }

    // By rank, for this tile: the buffers themselves or staging memory.
    WEFT_DEVICE const std::byte* const* inputs() const { return inputs_; }
    WEFT_DEVICE std::byte* const* outputs() const { return outputs_; }
    WEFT_DEVICE bool staged() const { return staged_; }

  private:
    WEFT_DEVICE PeerTile tile_of(uint64_t tile) const {
        return {tile_bytes_, size_t(tile * tile_bytes_), size_t(tile_length(a_.bytes, tile_bytes_, tile)),
                (tile & 1) != 0 ? half_bytes_ : 0};
    }
    // Writes this rank's buffer addresses to peers that may use them; the entry barrier makes them visible. The peer's
    // block has read the previous addresses before its last exit barrier, so they can be overwritten.
    WEFT_DEVICE void export_addresses() const {
        for (int peer = team_.thread; peer < a_.ranks; peer += team_.threads) {
            RankFlags& theirs = *a_.flags[peer];
            theirs.exported_inputs[team_.block][a_.rank] = a_.exported_send[peer];
            theirs.exported_outputs[team_.block][a_.rank] = a_.exported_receive[peer];
        }
    }
    WEFT_DEVICE int exporting_ranks() const {
        int count = 0;
        for (int rank = 0; rank < a_.ranks; ++rank)
            count += a_.flags[a_.rank]->exported_outputs[team_.block][rank] != nullptr;
        return count;
    }

    const Team team_;
    const KernelArguments& a_;
    KernelBarrier barrier_;
    const std::byte* const* inputs_;
    std::byte* const* outputs_;
    bool staged_;
    uint64_t tiles_;
    size_t tile_bytes_, half_bytes_;
};

}  // namespace weft::internal::cuda
