// heaps.hpp: the flag lines and heaps of a host's ranks, which follow the rows in the segment.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/shared_memory.hpp"
#include "src/segment/segment_layout.hpp"

namespace weft::internal {

// Owned by the Segment, and valid once that is settled. A heap belongs to the rank at this place among the local ranks;
// one more belongs to the host's leader. Thread-safe after map().
class Heaps {
  public:
    // `whole`: the segment, which must outlive this object and must not move.
    Status map(const SharedMemory& whole, const SegmentLayout& layout) {
        auto window = SharedMemory::window(whole, layout.lines(), layout.bytes() - layout.lines());
        if (!window) return window.take_status();
        WEFT_TRY(window->back(0, layout.lines_bytes()));
        memory_ = std::move(*window);
        layout_ = layout;
        return ok();
    }
    std::byte* lines() const { return memory_.data(); }
    std::byte* at(int place) const { return memory_.data() + offset(place); }
    // Backs memory of a heap, 64-byte aligned and zeroed. Thread-bound to the heap's owner.
    Status back(int place, size_t from, size_t length) { return memory_.back(offset(place) + from, length); }
    int local_count() const { return layout_.locals; }
    int leader_place() const { return local_count(); }
    size_t bytes() const { return layout_.heap_bytes; }
    size_t stride() const { return layout_.heap_stride(); }
    const SegmentLayout& layout() const { return layout_; }
    // Of the part of a heap for connections: a rank's out-of-band entries follow.
    size_t connections_end() const { return bytes() - layout_.oob_bytes(); }

  private:
    size_t offset(int place) const { return layout_.heap(place) - layout_.lines(); }

    SharedMemory memory_;
    SegmentLayout layout_{};
};

}  // namespace weft::internal
