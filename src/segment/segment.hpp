// segment.hpp: the shared-memory segment of one host: the ranks of a communicator as that host sees them.
// Rows hold each rank's location, processor, sleep state and calls. The host's leader writes the rows of remote ranks
// when it has something to report (control/control.hpp). Rows get memory when they are first written, which saves
// memory with thousands of ranks. Flag lines and heaps follow the rows and belong to this host's ranks alone. A process
// maps the segment once, and its rank threads share the mapping.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/base/shared_memory.hpp"
#include "src/segment/doorbell.hpp"
#include "src/segment/heaps.hpp"
#include "src/segment/segment_layout.hpp"

namespace weft::internal {

// Owned by the rank threads of a process together. Thread-safe unless stated otherwise. A const Segment is a mapping that
// stays as it is: the shared memory behind it changes. Views of it serve one need each: Liveness, FailureRecord,
// OobStore.
class Segment {
  public:
    // Makes a segment for `ranks` ranks and backs its header and rows. `settled`: all ranks are on this host. Otherwise
    // the caller must call settle() before it uses lines, heaps or entries.
    static Result<std::shared_ptr<Segment>> create(int ranks, bool settled = true);
    // Maps the segment in another process.
    static Result<std::shared_ptr<Segment>> map(Fd fd, bool settled = true);
    // Maps lines and heaps. Call it once all ranks have joined, since the set of local ranks is known then.
    Status settle();
    bool settled() const { return settled_.load(std::memory_order_acquire); }

    int ranks() const { return header().ranks; }
    bool one_host() const { return header().spread.load(std::memory_order_acquire) == 0; }
    const std::vector<int>& locals() const { return locals_; }         // ranks of this host, ascending
    bool local(int rank) const { return places_[size_t(rank)] >= 0; }  // valid once settled
    int place(int rank) const { return places_[size_t(rank)]; }        // index among the local ranks
    const int* places() const { return places_.data(); }
    // Both ranks must have joined, and their rows must be known here.
    bool same_process(int one, int other) const { return row(one).process == row(other).process; }
    // The rank in messages: `rank 3 (pid 77)`, `rank 3 (pid 77 on node7)`.
    std::string name_of(int rank) const;

    SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(memory_.data()); }
    RankInfo& rank_info(int rank) const {
        return reinterpret_cast<RankInfo*>(memory_.data() + SegmentLayout::rank_infos())[rank];
    }
    // Only with several hosts. The leader sets all of them.
    const HostInfo& host_info(int host) const {
        return reinterpret_cast<const HostInfo*>(memory_.data() + SegmentLayout{ranks(), 0}.host_infos())[host];
    }
    // Backs and writes a part before the heaps (SegmentLayout has the offsets), before another rank reads it.
    Status write(size_t offset, const void* data, size_t bytes);
    // Memory of rows: before they are written for the first time.
    Status back_rows(int first, int count) {
        return memory_.back(rows_offset_ + size_t(first) * sizeof(RankRow), size_t(count) * sizeof(RankRow));
    }
    RankRow& row(int rank) const { return reinterpret_cast<RankRow*>(memory_.data() + rows_offset_)[rank]; }
    const SharedMemory& memory() const { return memory_; }
    Heaps& heaps() { return heaps_; }
    Doorbell& doorbell() { return doorbell_; }

    // Whether the communicator has failed: FailureRecord has the error.
    bool aborted() const { return header().abort.state.load(std::memory_order_acquire) != 0; }
    // Call it after a rank has published something that others may sleep for. Costs a load of a line that rarely
    // changes.
    void wake() {
        // This fence orders the compiler. The sleeper's membarrier (Waiting::look()) orders the processor.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (header().sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake_sleepers();
    }
    void wake_sleepers();

    Segment(SharedMemory memory, int ranks);

  private:
    SharedMemory memory_;  // header and rows
    Heaps heaps_;
    size_t rows_offset_;
    std::vector<int> locals_, places_;
    Doorbell doorbell_;
    std::mutex settling_;
    std::atomic<bool> settled_{false};  // release, pairs with settled()
};

// Whether all ranks are in one process.
bool one_process(const Segment& segment);
// `ranks 3, 5 to 7 and 12`, shortened after eight runs.
std::string ranks_text(const std::vector<int>& ascending);

}  // namespace weft::internal
