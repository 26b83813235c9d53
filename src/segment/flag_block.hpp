// flag_block.hpp: a *flag_block* is memory of a host's ranks: each writes its own part, all read it (docs/design/shared-memory-protocol.md).
#pragma once
#include <array>
#include <memory>
#include <numeric>

#include "src/base/result.hpp"
#include "src/segment/segment.hpp"
#include "src/segment/shm_layout.hpp"

namespace weft::internal {

// This rank's view of the flag_block of its host's ranks. Plain memory: the executor reads and writes it without a
// call. Thread-bound. The protocol is in docs/design/shared-memory-protocol.md.
class FlagBlock {
  public:
    static constexpr size_t slot_bytes_max = size_t(1) << 20;
    static constexpr size_t slot_bytes_first = 8192;  // backed from the start, as a rule
    // Bytes of the rank's heap that a flag_block takes, from its beginning. Slots are not a power of two apart (cache sets).
    static constexpr size_t slot_stride = slot_bytes_max + 4096 + 320;
    static constexpr size_t heap_bytes = slot_stride * flag_slots;

    // `slots_later`: none is backed before reserve() is asked for it.
    static Result<std::unique_ptr<FlagBlock>> open(Segment& host, int rank, bool slots_later = false);

    int rank() const { return rank_; }
    // `rank` is any rank of this host; which of them take part in an operation is the schedule's to say.
    FlagLine& line(int rank, uint32_t tile) const {
        return *reinterpret_cast<FlagLine*>(lines_ + (size_t(tile % flag_slots) * size_t(locals_) + place(rank)) *
                                                         SegmentLayout::flag_line_stride);
    }
    // Where tiles' data lie: in one slot after the other, and there in one place after the other. Lines that a reader still
    // has in its second-level cache take several times as long to write as others. The same on all ranks.
    struct Rotation {
        uint32_t mask = 0;            // one less than how many places of a slot there are, a power of two
        uint32_t pitch = 0;           // bytes from one to the next
        uint32_t slots = flag_slots;  // that the data go round in, a power of two
        size_t bytes() const { return size_t(mask + 1) * pitch; }
        size_t begin(uint32_t tile) const { return size_t(tile / slots & mask) * pitch; }
    };
    // Of tiles of so many bytes, a multiple of a line. What all ranks' slots hold together, and a rank reads, is more than
    // a second-level cache and less than a last-level one. `in_order`: a rank posts no tile before it has read all of the
    // last one, so that two slots do (rule 3). Measured: perf/results.
    static Rotation rotation(size_t tile_bytes, int ranks, bool in_order);
    std::byte* slot(int rank, uint32_t tile) const {
        return heaps_ + heap_stride_ * place(rank) + slot_stride * (tile % flag_slots);
    }
    std::byte* slot(int rank, uint32_t tile, const Rotation& rotation) const {
        return slot(rank, tile % rotation.slots) + rotation.begin(tile);
    }
    void wake() { host_->wake(); }
    bool aborted() const { return host_->aborted(); }
    // Makes this rank's first `slots` hold `bytes` each. Local: nobody is told (rule 4).
    Status reserve(size_t bytes, uint32_t slots = flag_slots);
    size_t reserved() const { return std::accumulate(reserved_.begin(), reserved_.end(), size_t(0)); }

    uint32_t tile = 0;  // of the next tile; rises alike on all ranks

    FlagBlock(Segment& host, int rank);

  private:
    size_t place(int rank) const { return size_t(places_ ? places_[rank] : rank); }
    Segment* host_;
    std::byte* lines_;
    std::byte* heaps_;
    size_t heap_stride_;
    const int* places_;  // by rank; null where all ranks are on this host, each at its own place
    int locals_;
    int rank_;
    std::array<size_t, flag_slots> reserved_{};  // by slot
};

}  // namespace weft::internal
