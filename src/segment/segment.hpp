// segment.hpp: the shared-memory segment of one host: the ranks of a communicator as that host sees them.
// Rows hold each rank's location, processor, sleep state and calls. The host's leader writes the rows of remote ranks
// when it has something to report (control/control.hpp). Rows get memory when they are first written, which saves
// memory with thousands of ranks. Flag lines and heaps follow the rows and belong to this host's ranks alone. A process
// maps the segment once, and its rank threads share the mapping. Thread-safe unless stated otherwise.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/cpu.hpp"
#include "src/base/process_token.hpp"
#include "src/base/rank_set.hpp"
#include "src/base/shared_memory.hpp"
#include "src/segment/oob_store.hpp"
#include "src/segment/rank_row.hpp"
#include "weft/types.h"

namespace weft::internal {

// Options that must be equal on all ranks although each rank reads its own environment: rank 0's values count.
struct AgreedOptions {
    char algo[1024];
    int64_t tile_bytes;
    int64_t channels;
    int64_t join_bytes;
    int32_t direct;
    int32_t cma;           // CMA copies between processes, if there is no other way
    int32_t cma_messages;  // CMA copies of messages, even if there is another way
    int32_t deterministic;
    int32_t gpu_blocks;  // of a rank's kernel; 0: as many as fit
    int32_t gpu_threads;
    GpuPath gpu_path;
    uint64_t user_algorithms;      // a digest, equal on all ranks
    int32_t algo_files_any_order;  // equal on all ranks
};

// Facts about the hosts that all ranks share.
struct AgreedFacts {
    int32_t hosts;
    int32_t machines;        // machines that these hosts are on: containers share one
    int32_t ranks_per_core;  // the maximum over the machines
    int64_t link_mbps;       // of the slowest host's network; 0: unknown, or all hosts are on one machine
};

// Identity and location of each rank, local or remote, as known on this host.
struct RankInfo {
    std::atomic<uint64_t>
        claimant;  // the token of the process of this host that is to be this rank; 0: none yet (see claim())
    std::atomic<int32_t> claimant_pid;  // for messages; 0: not stored yet
    std::atomic<int32_t> pid;           // 0: not joined (release, after the rest of its row)
    int32_t host;                       // index of its host; valid once the segment is settled
    int32_t cpu;                        // the first hardware thread that it may run on; -1: unknown
};

// One per host of a communicator with several hosts.
struct HostInfo {
    char name[48];                // for messages
    int32_t leader;               // pid of its leader
    char listener_addresses[61];  // of its listener: net::PackedAddresses
};

// The first error of the communicator. Written once; every waiting rank polls `state`.
struct AbortRecord {
    alignas(64) std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 written (release, pairs with aborted())
    char id[error_id_bytes];
    int32_t rank;  // the rank that reported it
    FailureFacts facts;
    char sentence[1000];
};

struct SegmentHeader {
    uint64_t magic;
    uint32_t version;
    int32_t ranks;
    uint64_t heap_bytes;                       // SegmentLayout::heap_bytes as the creator could afford it
    AgreedOptions agreed;                      // valid once all ranks have joined
    AgreedFacts facts;                         // likewise, if there are several hosts
    int32_t own_host;                          // likewise
    alignas(64) std::atomic<uint32_t> joined;  // number of this host's ranks that have joined; futex word
    // 1: the ranks of all hosts have joined, and rank_info() is complete (release, pairs with one_host())
    std::atomic<uint32_t> spread;
    std::atomic<uint32_t> oob_received;          // number of entries received from other hosts
    std::atomic<uint32_t> health_requests;       // incremented when a rank requests the state of remote ranks
    alignas(64) std::atomic<uint32_t> sleepers;  // number of ranks that sleep or are about to
    AbortRecord abort;
    LossRecord loss;
};

// Sizes and offsets in the segment. They depend only on the rank count and the header, so all processes agree.
struct SegmentLayout {
    // A rank's own area: flag block slots, connections, entries. Smaller under an address-space limit (ulimit -v).
    static constexpr size_t heap_bytes_most = size_t(64) << 20, heap_bytes_least = size_t(16) << 20;
    static size_t affordable_heap_bytes(int ranks);
    static constexpr size_t flag_line_stride = 128;  // two lines: the prefetcher fetches pairs
    static constexpr int flag_lines = 4;             // lines of a rank in the flag block (src/segment/shm_layout.hpp)
    static constexpr size_t texts_bytes = size_t(2) << 20;  // Segment::write_texts()

    int ranks;   // of the communicator
    int locals;  // of this host
    size_t heap_bytes = heap_bytes_most;
    static size_t rank_infos() { return sizeof(SegmentHeader); }
    size_t host_infos() const { return round(rank_infos() + sizeof(RankInfo) * size_t(ranks)); }
    size_t rows() const { return round(host_infos() + sizeof(HostInfo) * size_t(ranks)); }
    size_t texts() const { return round(rows() + sizeof(RankRow) * size_t(ranks)); }
    size_t lines() const { return texts() + texts_bytes; }
    // Not a power of two, so that the lines of different ranks fall in different cache sets.
    size_t heap_stride() const { return heap_bytes + 4096 + 192; }
    size_t heap(int local) const { return round(lines() + lines_bytes()) + heap_stride() * size_t(local); }
    size_t lines_bytes() const { return flag_line_stride * flag_lines * size_t(locals); }
    size_t bytes() const { return round(heap(locals + 1)); }  // the last heap is the leader's

  private:
    static size_t round(size_t bytes) { return (bytes + 4095) & ~size_t(4095); }
};

class Segment {
  public:
    // Makes a segment for `ranks` ranks and backs its header and rows. `settled`: all ranks are on this host. Otherwise
    // the caller must call settle() before it uses lines, heaps or entries.
    static Result<std::shared_ptr<Segment>> create(int ranks, bool settled = true);
    // Maps the segment in another process.
    static Result<std::shared_ptr<Segment>> map(Fd fd, bool settled = true);
    // Maps lines and heaps. Call it once all ranks have joined, since the set of local ranks is known then.
    Status settle();

    int ranks() const { return header().ranks; }
    bool one_host() const { return header().spread.load(std::memory_order_acquire) == 0; }
    const std::vector<int>& locals() const { return locals_; }         // ranks of this host, ascending
    bool local(int rank) const { return places_[size_t(rank)] >= 0; }  // valid once settled
    int place(int rank) const { return places_[size_t(rank)]; }        // index among the local ranks
    const int* places() const { return places_.data(); }
    // Both ranks must have joined, and their rows must be known here.
    bool same_process(int one, int other) const { return row(one).process == row(other).process; }
    bool one_process() const {
        for (int rank = 1; rank < ranks(); ++rank)
            if (!same_process(0, rank)) return false;
        return true;
    }
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
    Status set_host_infos(const std::vector<HostInfo>& hosts);
    // Agreed data without a fixed length (control/agreed_texts.hpp has the layout), at most texts_most bytes. Rank 0
    // writes it when it joins. With several hosts, each host's leader writes it again once all ranks have joined.
    static constexpr size_t texts_most = SegmentLayout::texts_bytes - sizeof(uint64_t);
    Status write_texts(const void* data, size_t bytes);
    std::span<const std::byte> texts() const;
    // Memory of rows: before they are written for the first time.
    Status back_rows(int first, int count) {
        return memory_.back(rows_offset_ + size_t(first) * sizeof(RankRow), size_t(count) * sizeof(RankRow));
    }
    RankRow& row(int rank) const { return reinterpret_cast<RankRow*>(memory_.data() + rows_offset_)[rank]; }
    std::byte* lines() const { return data_.data(); }
    std::byte* heap(int rank) const { return data_.data() + heap_offset(place(rank)); }
    const SharedMemory& memory() const { return memory_; }

    // Backs memory of this rank's own heap, 64-byte aligned and zeroed. Thread-bound to the rank.
    Status back(int rank, size_t offset, size_t length) {
        return data_.back(heap_offset(place(rank)) + offset, length);
    }

    // Whether the rank's process lives, by a lock that the kernel drops when the process ends. True for a rank of this
    // process. For a rank of another host its leader reports the death.
    bool alive(int rank) const;
    // Whether its process is stopped by a signal. For a rank of another host, as of its leader's last report.
    bool stopped(int rank) const;
    // The failure that was returned to the rank, if the rank has called nothing since; else ok.
    Status returned_error(int rank) const;
    // For the leader: the rank's process or its whole host has ended.
    void mark_dead(int rank);
    // Makes this process the rank's process by taking the lock, so that other processes see its death. weftMismatch if
    // the rank already has a process.
    Status claim(int rank);
    // Whether a process has claimed the rank and ended before it joined.
    bool died_joining(int rank) const;

    // Union of the processors that the ranks of this host may run on.
    CpuSet cpus() const;
    // Number of cores that the ranks of this host may use together.
    int cores() const;

    // Records the first error and wakes all ranks. False if another error was first.
    // `rank`: the reporting rank, -1 if unknown. Allocates nothing.
    bool raise(ErrorId error, int rank, std::string_view sentence, const FailureFacts& facts = {});
    bool raise(const Failure& failure, int rank) { return raise(failure.id, rank, failure.sentence, failure.facts); }
    bool raise(const Status& failure, int rank) { return raise(failure.failure(), rank); }
    bool aborted() const { return header().abort.state.load(std::memory_order_acquire) != 0; }
    // The recorded error; waits briefly if it is just being written.
    Status abort_status() const;

    // Call it after a rank has published something that others may sleep for. Costs a load of a line that rarely
    // changes.
    void wake() {
        // This fence orders the compiler. The sleeper's membarrier (Waiting::look()) orders the processor.
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (header().sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake_sleepers();
    }
    void wake_sleepers();

    // The out-of-band store (oob_store.hpp). The call oob_put() is thread-bound to `rank`. The call oob_get() is null until the
    // entry is there: a rank of this host writes it into shared memory, the control plane delivers that of another host.
    using OobEntry = internal::OobEntry;
    static constexpr size_t oob_value_bytes = OobEntry::value_bytes;
    static constexpr size_t oob_entries_max = LocalOobStore::entries_max;
    size_t oob_received_max() const { return RemoteOobStore::entries_max(heap_bytes_); }
    size_t connections_end() const { return heap_bytes_ - LocalOobStore::area_bytes; }  // a rank's entries follow
    size_t heap_stride() const { return SegmentLayout{0, 0, heap_bytes_}.heap_stride(); }
    Status oob_put(int rank, int to, uint64_t key, const void* data, size_t bytes);
    const std::byte* oob_get(int rank, uint64_t key) const;
    // For the leader: the next entry of a local rank, from `index` on, for another host; and delivery of a received
    // entry.
    const OobEntry* next_outgoing_oob(int rank, uint32_t& index) const;
    Status oob_deliver(const OobEntry& entry);

    // Wakes the host's leader to read the segment. Does nothing if there is one host.
    void ring() const;
    void set_doorbell(Fd eventfd) { doorbell_ = std::move(eventfd); }
    void drain_doorbell() const { drain_event(doorbell_); }
    int doorbell() const { return doorbell_.number(); }

    Segment(SharedMemory memory, int ranks, size_t heap_bytes);

  private:
    bool locked_elsewhere(int rank) const;
    bool mapped_by(const RankRow& row) const;
    size_t heap_offset(int place) const {
        return SegmentLayout{ranks(), int(locals_.size()), heap_bytes_}.heap(place) - data_offset_;
    }
    LocalOobStore local_oob(int rank) const;
    RemoteOobStore remote_oob() const;

    SharedMemory memory_;  // header and rows
    SharedMemory data_;    // lines and heaps
    size_t heap_bytes_, rows_offset_, data_offset_;
    std::vector<int> locals_, places_;
    Fd doorbell_;
    std::mutex settling_;
    std::atomic<bool> settled_{false};  // release, pairs with alive() and wake_sleepers()
};

// `ranks 3, 5 to 7 and 12`, shortened after eight runs.
std::string ranks_text(const std::vector<int>& ascending);

// The inode of this process's pid namespace; 0: unknown.
uint64_t pid_namespace();
// Whether a process of this host is stopped by a signal.
bool process_stopped(int pid);

}  // namespace weft::internal
