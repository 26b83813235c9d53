// flag_block.hpp: a *flag block* is memory of a host's ranks: each rank writes its own part, all ranks read all parts.
// The protocol: docs/design/shared-memory-protocol.md.
#pragma once
#include <array>
#include <memory>
#include <numeric>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal {

// This rank's view of its host's flag block. The kernels read and write this memory directly. Thread-bound.
class FlagBlock {
  public:
    static constexpr size_t slot_bytes_max = size_t(1) << 20;
    static constexpr size_t slot_bytes_first = 8192;  // usually backed from the start
    // Bytes that a flag block takes at the beginning of the rank's heap. The slot stride is not a power of two, so that
    // slots fall in different cache sets.
    static constexpr size_t slot_stride = slot_bytes_max + 4096 + 320;
    static constexpr size_t heap_bytes = slot_stride * flag_slots;

    // `slots_later`: no slot is backed before the first reserve().
    static Result<std::unique_ptr<FlagBlock>> open(Segment& host, int rank, bool slots_later = false);

    int rank() const { return rank_; }
    // `rank`: any rank of this host. The schedule says which of them take part in an operation.
    FlagLine& line(int rank, uint32_t tile) const {
        return *reinterpret_cast<FlagLine*>(lines_ + (size_t(tile % flag_slots) * size_t(locals_) + place(rank)) *
                                                         SegmentLayout::flag_line_stride);
    }
    // Where the data of tiles lie: in the slots in turn, and within a slot at its places in turn. Lines that are still
    // in a reader's second-level cache take several times as long to write. Equal on all ranks.
    struct Rotation {
        uint32_t mask = 0;            // number of places in a slot, a power of two, minus one
        uint32_t pitch = 0;           // bytes from one place to the next
        uint32_t slots = flag_slots;  // slots that the data rotate through, a power of two
        size_t bytes() const { return size_t(mask + 1) * pitch; }
        size_t begin(uint32_t tile) const { return size_t(tile / slots & mask) * pitch; }
    };
    // The rotation for tiles of `tile_bytes`, a multiple of a line. The slots of all ranks together shall exceed a
    // second-level cache and fit the last-level cache.
    // `in_order`: a rank posts a tile only after it has read all of the previous tile, so two slots suffice (rule 3).
    static Rotation rotation(size_t tile_bytes, int ranks, bool in_order);
    std::byte* slot(int rank, uint32_t tile) const {
        return heaps_ + heap_stride_ * place(rank) + slot_stride * (tile % flag_slots);
    }
    std::byte* slot(int rank, uint32_t tile, const Rotation& rotation) const {
        return slot(rank, tile % rotation.slots) + rotation.begin(tile);
    }
    void wake() { host_->wake(); }
    bool aborted() const { return host_->aborted(); }
    // Backs `bytes` in each of this rank's first `slots` slots. Local: no other rank needs to know (rule 4).
    Status reserve(size_t bytes, uint32_t slots = flag_slots);
    size_t reserved() const { return std::accumulate(reserved_.begin(), reserved_.end(), size_t(0)); }

    uint32_t tile = 0;  // number of the next tile; advances equally on all ranks

    FlagBlock(Segment& host, int rank);

  private:
    size_t place(int rank) const { return size_t(places_ ? places_[rank] : rank); }
    Segment* host_;
    std::byte* lines_;
    std::byte* heaps_;
    size_t heap_stride_;
    const int* places_;  // by rank; null if all ranks are on this host, each at the place of its rank
    int locals_;
    int rank_;
    std::array<size_t, flag_slots> reserved_{};  // by slot
};

}  // namespace weft::internal
