// peer_tiles.hpp: how the blocks of a kernel use peers' memory: in place where all ranks export_addresses their buffers, else
// through staging memory, a tile at a time; with a barrier of the block and its peers before the first tile, and one
// behind each. Of several tiles two share that memory: before the barrier behind one the next is put into the other half,
// so that blocks wait for each other once a tile. The kernels tell each other where, so that a captured graph and a call
// with other buffers need no agreement of the hosts.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/reduce.hpp"

namespace weft::internal::cuda {

// Block b of rank r works on piece b of share r, and nobody but block b of the other ranks on the same memory; for that
// the bounds are those of a full tile, also in a shorter one, where blocks of the tile before may still be at work.
WEFT_DEVICE ChunkRange piece_of(size_t tile_bytes, size_t length, int shares, int share_index, const Team& team) {
    const ChunkRange share = chunk_range(tile_bytes, shares, share_index, 1);
    const ChunkRange piece = chunk_range(share.bytes, team.blocks, team.block, 1);
    const size_t begin = share.tile_offset + piece.tile_offset, end = begin + piece.bytes;
    if (begin >= length) return {length, 0};
    return {begin, (end < length ? end : length) - begin};
}

struct PeerTile {
    size_t bytes;   // of a full one
    size_t offset;  // in the message
    size_t length;
    size_t place;  // in staging memory, or, where buffers are used in place, 0
};

class PeerTiles {
  public:
    // pieces: of a tile's size that a rank stages of each tile.
    WEFT_DEVICE PeerTiles(const Team& team, const KernelArguments& arguments, int pieces = 1)
        : team_(team),
          a_(arguments),
          barrier_(team, arguments),
          inputs_(arguments.inputs),
          outputs_(arguments.outputs),
          staged_(arguments.tile_bytes != 0) {
        tiles_ = staged_ && a_.bytes != 0 ? (a_.bytes + a_.tile_bytes - 1) / a_.tile_bytes : 1;
        tile_bytes_ = staged_ ? ((a_.bytes + tiles_ - 1) / tiles_ + 63) / 64 * 64 : a_.bytes;  // alike
        half_bytes_ = tile_bytes_ * size_t(pieces);
    }

    // Calls stage(tile) for what peers shall find in this rank's staging memory, work(tile) when they do, and
    // unstage(tile) for what they have put there.
    template <class Stage, class Work, class Unstage>
    WEFT_DEVICE void run(Stage&& stage, Work&& work, Unstage&& unstage) {
        if (!barrier_.begin()) return;
        // Of the first tile.
        bool there = false, met = false;
        if (a_.exports_buffers) {
            export_addresses();
            // If nobody offers anything, no barrier was in vain.
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
            if (!met && !(barrier_.announce() && barrier_.await(KernelWait::entry))) return;
        } else {
            if (!there) stage(tile_of(0));
            if (!met && !barrier_.sync(KernelWait::entry)) return;
        }
        for (uint64_t tile = 0; tile < tiles_; ++tile) {
            barrier_.at_tile(tile);
            work(tile_of(tile));
            if (staged_ && tile + 1 < tiles_) {
                // What threads of ours take out of that half since the last barrier others of ours write now: where
                // buffers lie apart otherwise, not the same ones.
                team_.barrier();
                stage(tile_of(tile + 1));
            }
            // Whoever is behind it has read what this half held before, and not begun with what comes there next.
            if (!barrier_.sync(KernelWait::exit)) return;
            if (staged_) unstage(tile_of(tile));
        }
        barrier_.leave();
    }

    // By rank, of this tile: the buffers themselves, or staging memory.
    WEFT_DEVICE const std::byte* const* inputs() const { return inputs_; }
    WEFT_DEVICE std::byte* const* outputs() const { return outputs_; }
    WEFT_DEVICE bool staged() const { return staged_; }

  private:
    WEFT_DEVICE PeerTile tile_of(uint64_t tile) const {
        return {tile_bytes_, size_t(tile * tile_bytes_), size_t(tile_length(a_.bytes, tile_bytes_, tile)),
                (tile & 1) != 0 ? half_bytes_ : 0};
    }
    // Tells this block's peers where our buffers are, if they may use them; the barrier of entry comes next and makes
    // it visible. A peer's block has read what we told before when we are here again: that was before its barrier of
    // exit.
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

    const Team& team_;
    const KernelArguments& a_;
    KernelBarrier barrier_;
    const std::byte* const* inputs_;
    std::byte* const* outputs_;
    bool staged_;
    uint64_t tiles_;
    size_t tile_bytes_, half_bytes_;
};

}  // namespace weft::internal::cuda
