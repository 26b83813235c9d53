// peer_tiles.hpp: access to peers' memory from a kernel's blocks. If all ranks export their buffers, the blocks use
// them in place. Otherwise they use staging memory, one tile at a time. The block and its peers pass a barrier before
// the first tile and after each tile.
// Tiles alternate between two halves of the staging memory, with one barrier per tile. While half of a block's threads
// work on a tile, the others take out the results of the tile before and stage the next one, in the other half.
// The kernels exchange the addresses, so a captured graph or a call with other buffers needs no agreement of the hosts.
#pragma once
#include "src/gpu/kernels/kernel_barrier.hpp"
#include "src/gpu/kernels/packets/packet_line.hpp"
#include "src/gpu/kernels/rows.hpp"

namespace weft::internal::cuda {

struct PeerTile {
    size_t bytes;   // of a full tile
    size_t offset;  // in the message
    size_t length;
    size_t place;  // offset in staging memory; 0 if buffers are used in place
    size_t piece;  // bytes of a block's piece of a share: a multiple of 64
};

// Block b of rank r works on piece b of share r, and only block b of other ranks uses that memory. So a shorter tile
// keeps a full tile's bounds: blocks may still work on the tile before.
WEFT_DEVICE ChunkRange piece_of(const PeerTile& tile, int share, const Team& team) {
    const size_t begin = (size_t(share) * size_t(team.blocks) + size_t(team.block)) * tile.piece;
    if (begin >= tile.length) return {0, 0};
    return {begin, tile.piece < tile.length - begin ? tile.piece : tile.length - begin};
}

class PeerTiles {
  public:
    // shares: how many ranks share a tile's work. pieces: how many pieces of a tile's size a rank stages per tile.
    // alike: exports are tokens and no addresses. Buffers are used in place only if all ranks export the same.
    WEFT_DEVICE PeerTiles(const Team& team, const KernelArguments& arguments, int shares, int pieces,
                          bool alike = false)
        : team_(team),
          a_(arguments),
          barrier_(team, arguments),
          staged_(arguments.tile_bytes != 0),
          alike_(alike),
          shares_(shares),
          pieces_(pieces) {
        set_tiles();
    }

    // Calls stage(team, tile) to fill this rank's staging memory, work(team, tile) when all peers have staged, and
    // unstage(team, tile) to take out the peers' results. In stage() and unstage() the same thread uses a byte of staging
    // memory. `team`: the threads that take part; they have no barrier.
    template <class Stage, class Work, class Unstage>
    WEFT_DEVICE void run(Stage&& stage, Work&& work, Unstage&& unstage) {
        if (!barrier_.begin()) return;
        bool asks = a_.exports_buffers;  // ranks that let others use their buffers in place do not stage yet
        if (asks) export_addresses();
        const bool exports = asks && a_.exported_receive[a_.rank] != nullptr;
        WEFT_NO_UNROLL
        for (int tile = -1;;) {
            const bool inside = tile >= 0 && tile < tiles_,
                       splits = inside && staged_ && tiles_ > 1 && team_.threads > 1;
            const int half = splits ? team_.threads / 2 : 0;
            if (inside && (!splits || team_.thread < half))
                work(part_of(0, splits ? half : team_.threads), tile_of(tile));
            const bool stages = staged_ && !(asks && exports);
            if (stages && team_.thread >= half) {
                const Team copiers = part_of(half, team_.threads - half);
                // All peers have passed the barrier behind the tile before, so nobody uses the other half.
                if (tile > 0) unstage(copiers, tile_of(tile - 1));
                if (tile + 1 < tiles_) stage(copiers, tile_of(tile + 1));
            }
            if (tile == tiles_) break;
            if (inside && !staged_) {
                if (!barrier_.depart()) return;
                break;
            }
            // Without staging, what peers read was written by earlier work of the stream.
            if (!barrier_.sync(inside ? KernelWait::exit : KernelWait::entry, stages)) return;
            if (asks) {
                asks = false;
                if (!receive_addresses()) return;
                const int exporting = exporting_ranks();
                if (exporting == a_.ranks && (!alike_ || exports_are_alike())) use_exported();
                // All stage, and meet again.
                else if (exporting != 0)
                    continue;
            }
            barrier_.at_tile(uint64_t(++tile));
        }
        barrier_.leave();
    }

    // By rank, for this tile: the buffers themselves or staging memory.
    WEFT_DEVICE const std::byte* const* inputs() const {
        return exported_ ? a_.own->exported_inputs[team_.block] : a_.inputs;
    }
    WEFT_DEVICE std::byte* const* outputs() const {
        return exported_ ? a_.own->exported_outputs[team_.block] : a_.outputs;
    }
    WEFT_DEVICE bool staged() const { return staged_; }

  private:
    WEFT_DEVICE void set_tiles() {
        tiles_ = staged_ && a_.bytes != 0 ? int((a_.bytes + a_.tile_bytes - 1) / a_.tile_bytes) : 1;
        tile_bytes_ = staged_ ? lines_of(a_.bytes, size_t(tiles_)) : a_.bytes;  // of equal size
        piece_ = lines_of(tile_bytes_, size_t(shares_ * team_.blocks));
    }
    // A part of `bytes`, in multiples of 64, which hold a whole number of elements of every type.
    static WEFT_DEVICE size_t lines_of(size_t bytes, size_t parts) {
        return ((bytes + parts - 1) / parts + 63) / 64 * 64;
    }
    WEFT_DEVICE void use_exported() {
        exported_ = true;
        staged_ = false;
        set_tiles();
    }
    WEFT_DEVICE Team part_of(int first, int threads) const {
        Team part = team_;
        part.thread -= first;
        part.threads = threads;
        return part;
    }
    WEFT_DEVICE PeerTile tile_of(int tile) const {
        return {tile_bytes_, size_t(tile) * tile_bytes_, size_t(tile_length(a_.bytes, tile_bytes_, uint64_t(tile))),
                (tile & 1) != 0 ? tile_bytes_ * size_t(pieces_) : 0, piece_};
    }
    // Sends this rank's buffer addresses to peers that may use them. The peer's block has read the previous ones before
    // its last exit barrier or departure, so they can be overwritten.
    WEFT_DEVICE void export_addresses() const {
        const uint32_t entry = barrier_.epoch() + 1;
        for (int peer = team_.thread; peer < a_.ranks; peer += team_.threads) {
            PacketLine(&lines)[2] = a_.flags[peer]->exports[team_.block][a_.rank];
            store_line(&lines[0], packet_line(reinterpret_cast<uint64_t>(a_.exported_send[peer]), entry));
            store_line(&lines[1], packet_line(reinterpret_cast<uint64_t>(a_.exported_receive[peer]), entry));
        }
    }
    // Behind the entry barrier. False: leave.
    WEFT_DEVICE bool receive_addresses() const {
        RankFlags& own = *a_.own;
        bool failed = false;
        for (int peer = team_.thread; peer < a_.ranks; peer += team_.threads) {
            const PacketLine(&lines)[2] = own.exports[team_.block][peer];
            PacketLine input, output;
            failed |= !barrier_.spin(
                KernelWait::entry, [&] { return peer; },
                [&] {
                    input = load_line(&lines[0]);
                    output = load_line(&lines[1]);
                    return EpochLines::has_arrived(input, barrier_.epoch()) &&
                           EpochLines::has_arrived(output, barrier_.epoch());
                });
            own.exported_inputs[team_.block][peer] = reinterpret_cast<const std::byte*>(data_of(input));
            own.exported_outputs[team_.block][peer] = reinterpret_cast<std::byte*>(data_of(output));
        }
        return !team_.any(failed);
    }
    WEFT_DEVICE int exporting_ranks() const {
        int count = 0;
        for (int rank = 0; rank < a_.ranks; ++rank) count += a_.own->exported_outputs[team_.block][rank] != nullptr;
        return count;
    }

    WEFT_DEVICE bool exports_are_alike() const {
        const RankFlags& own = *a_.own;
        bool alike = true;
        for (int rank = 0; rank < a_.ranks; ++rank)
            alike &= own.exported_inputs[team_.block][rank] == a_.exported_send[a_.rank] &&
                     own.exported_outputs[team_.block][rank] == a_.exported_receive[a_.rank];
        return alike;
    }

    const Team team_;
    const KernelArguments& a_;
    KernelBarrier barrier_;
    bool staged_, exported_ = false;  // exported: buffers are used in place, at the addresses that their ranks gave
    const bool alike_;
    int shares_, pieces_, tiles_;
    size_t tile_bytes_, piece_;
};

}  // namespace weft::internal::cuda
