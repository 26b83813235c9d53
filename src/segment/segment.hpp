// segment.hpp: a communicator as the ranks of one host see it in their shared segment: who all the ranks are and
// where each is, which processor each was last seen on, who sleeps, and the first error. Rows of ranks of other hosts
// are mirrors that the host's leader writes (control/control.hpp) when there is something to be said; of thousands of
// ranks that never are in trouble only their rows take memory. What follows the rows, lines of the flag block and
// heaps, is of the ranks of this host alone. One mapping a process, shared by its rank threads. Everything here is
// thread-safe unless it says otherwise.
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
#include "src/segment/position.hpp"
#include "src/segment/returned_error.hpp"
#include "weft/types.h"

namespace weft::internal {

// With which way to each other's device memory ranks begin.
enum class GpuPath : int32_t { fastest, descriptors, host, copies };
inline constexpr std::string_view gpu_path_names[] = {"", "descriptors", "host", "copies"};

// What all ranks must do alike although each reads its own environment: rank 0's values count.
struct AgreedOptions {
    char algo[1024];
    int64_t tile_bytes;
    int64_t channels;
    int64_t join_bytes;
    int32_t direct;
    int32_t cma;           // the kernel copies between processes, where there is no other way
    int32_t cma_messages;  // and messages, where there is
    int32_t deterministic;
    int32_t gpu_blocks;  // of a rank's kernel; 0: as there is room
    int32_t gpu_threads;
    GpuPath gpu_path;
    uint64_t user_algorithms;      // a digest: those of all ranks are the same
    int32_t algo_files_any_order;  // likewise the same on all ranks
};

// What all ranks know alike of all hosts.
struct AgreedFacts {
    int32_t hosts;
    int32_t machines;        // that these are on: containers share one
    int32_t ranks_per_core;  // of the machine where it is most
    int64_t link_mbps;       // of the slowest host's network; 0: nobody knows, or all are on one machine
};

// What a rank says of its GPU to the others when it joins. Plain data: whoever knows GPUs fills it in.
struct DeviceFacts {
    // refused: it has one, and its log says why it does not use it. copied: its memory is copied to the host's and back,
    // for no kernels of ours run on it.
    enum Use : uint32_t { none, usable, refused, copied };
    Use use;
    int32_t ordinal;          // in its process
    uint8_t uuid[16];         // ranks with equal ones share the GPU, of whatever host they say they are
    int32_t resident_blocks;  // of any kernel of ours that run on it at once
    char bus_id[20];          // its address there: 0000:1b:00.0
    uint32_t capabilities;    // of the kernels' (gpu/kernels/capability.def)
};

// Dead: its leader says so, or its whole host is lost.
enum class RankState : uint32_t { absent, joined, left, dead };

// What is known of every rank, wherever it is.
struct RankInfo {
    std::atomic<uint64_t>
        claimant;  // the token of the process of this host that is to be this rank; 0: none yet (see claim())
    std::atomic<int32_t> claimant_pid;  // for sentences; 0: not told yet
    std::atomic<int32_t> pid;           // 0: it has not joined (release, after the rest of its row)
    int32_t host;                       // index of its host; valid once the segment is settled
    int32_t cpu;                        // the first hardware thread that it may run on; -1: unknown
};

// What is known of every host, where there are several.
struct HostInfo {
    char name[48];                // for sentences
    int32_t leader;               // its process
    char listener_addresses[61];  // its listener: net::PackedAddresses
};

// How ranks of this host make a communicator of their own from this one (rendezvous/split_rendezvous.hpp). Each word names a
// child by its number; the words of a child's first rank are for all of its ranks to look at.
struct alignas(64) SplitRow {
    std::atomic<uint64_t> wanted;    // this rank has come to make it
    std::atomic<uint64_t> offered;   // its segment is `inode`, `fd` in this rank's process (release)
    std::atomic<uint64_t> refused;   // somebody may not open that
    std::atomic<uint64_t> fallback;  // so its ranks meet by `id` (release)
    std::atomic<uint64_t> failed;    // this rank has given it up
    int32_t fd;
    uint64_t inode;
    unsigned char id[WEFT_UNIQUE_ID_BYTES];
};

// Of a rank of another host: zero until its leader was asked for news of it.
struct alignas(64) RankRow {
    // The first lines, written once by its rank when it joins.
    std::atomic<RankState> state;
    int32_t pid;
    uint64_t pid_namespace;  // pid_namespace() there: whether its pid means something here
    uint64_t process;        // random, the same for the ranks of one process
    uint64_t token_address;  // where that number lies in its memory: who can read it there can read everything
    int32_t arena_fd;        // number in that process, -1: none (see arena.hpp)
    uint64_t arena_inode;
    CpuSet cpus;     // that it may run on
    CpuQuota quota;  // of the time there
    DeviceFacts device;
    // A line that it writes at every call.
    Position position;
    // A line that it writes when it waits. pairs with Segment::wake()
    alignas(64) std::atomic<int32_t> cpu;  // one more than the processor's number; 0: unknown
    std::atomic<uint32_t> sleeping;        // futex word: 1 while it sleeps or is about to
    std::atomic<uint64_t> gave_up;  // the call that it left early: from then on it touches nobody's buffers (release)
    // One more than the rank whose memory it is at, itself, for a one-sided call; 0: nobody's.
    std::atomic<int32_t> touching;
    std::atomic<int64_t> in_function_us;  // since when it is in the function of a user's reduction; 0: it is in none
    // What it waits for outside of collectives (PartnerWait), and since when nothing of that has moved; 0: not for long.
    std::atomic<int64_t> partner_wait_us;
    std::atomic<uint64_t> partner_wait;
    // A line that it writes when a group collects calls: how many, and since when.
    alignas(64) std::atomic<uint32_t> held_calls;
    std::atomic<int64_t> held_us;
    // Out-of-band entries that it has put.
    alignas(64) std::atomic<uint32_t> oob_entries;
    // Of a rank of another host: when its leader last told where it is, by this host's monotonic clock; 0: never.
    std::atomic<int64_t> heard_us;
    // Likewise: what its leader last told in answer to a question was so at this time or later (release).
    std::atomic<int64_t> known_us;
    std::atomic<uint32_t> stopped;  // likewise: 1 if its process was stopped then
    // 1: nothing is known of it but that the leader of its host, another process, died (release, before the state).
    std::atomic<uint32_t> out_of_sight;
    // 1: none of its kernels runs any more and it has unmapped the device memory of others (release).
    std::atomic<uint32_t> device_left;
    SplitRow split;
    // Written before an error of any communicator of its process is returned to the caller.
    ReturnedError returned_error;
};

// The first error of the communicator. Written once; everybody who waits looks at `state`.
struct AbortRecord {
    alignas(64) std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 written (release, pairs with aborted())
    char id[error_id_bytes];
    int32_t rank;  // that reported it
    FailureFacts facts;
    char sentence[1000];
};

// The first host that went without shutdown frame, as the host's leader heard of it. Written once.
struct LossRecord {
    std::atomic<uint32_t> state;  // 1: written (release, pairs with Watchdog::look_at())
    int32_t host;
    char sentence[500];
};

struct SegmentHeader {
    uint64_t magic;
    uint32_t version;
    int32_t ranks;
    uint64_t heap_bytes;                       // SegmentLayout's, as its creator could afford
    AgreedOptions agreed;                      // valid once all have joined
    AgreedFacts facts;                         // likewise, where there are several hosts
    int32_t own_host;                          // likewise
    alignas(64) std::atomic<uint32_t> joined;  // ranks of this host that have; futex word
    std::atomic<uint32_t> spread;           // 1: the ranks of all hosts have joined, and the rows say where (release)
    std::atomic<uint32_t> oob_received;     // entries that have come from other hosts
    std::atomic<uint32_t> health_requests;  // rises when a rank wants news of ranks of other hosts
    alignas(64) std::atomic<uint32_t> sleepers;  // ranks that sleep or are about to
    AbortRecord abort;
    LossRecord loss;
};

// Sizes and places of everything in the segment; functions of the rank count and of what the header says, so all sides
// agree.
struct SegmentLayout {
    // A rank's own area: flag block slots, connections, entries. Smaller where address space is limited (ulimit -v).
    static constexpr size_t heap_bytes_most = size_t(64) << 20, heap_bytes_least = size_t(16) << 20;
    static size_t affordable_heap_bytes(int ranks);
    static constexpr size_t flag_line_stride = 128;  // two lines: the prefetcher fetches pairs
    static constexpr int flag_lines = 4;             // a rank's lines on the flag block (src/segment/shm_layout.hpp)
    static constexpr size_t texts_bytes = size_t(2) << 20;  // Segment::write_texts()

    int ranks;   // of the communicator
    int locals;  // of this host
    size_t heap_bytes = heap_bytes_most;
    static size_t rank_infos() { return sizeof(SegmentHeader); }
    size_t host_infos() const { return round(rank_infos() + sizeof(RankInfo) * size_t(ranks)); }
    size_t rows() const { return round(host_infos() + sizeof(HostInfo) * size_t(ranks)); }
    size_t texts() const { return round(rows() + sizeof(RankRow) * size_t(ranks)); }
    size_t lines() const { return texts() + texts_bytes; }
    // Not a power of two: ranks' lines fall in different cache sets.
    size_t heap_stride() const { return heap_bytes + 4096 + 192; }
    size_t heap(int local) const { return round(lines() + lines_bytes()) + heap_stride() * size_t(local); }
    size_t lines_bytes() const { return flag_line_stride * flag_lines * size_t(locals); }
    size_t bytes() const { return round(heap(locals + 1)); }  // the last heap is the leader's

  private:
    static size_t round(size_t bytes) { return (bytes + 4095) & ~size_t(4095); }
};

class Segment {
  public:
    // A segment for `ranks` ranks, its header and rows backed. Settled: all of them are on this host; else settle()
    // must be called before lines, heaps and entries are used.
    static Result<std::shared_ptr<Segment>> create(int ranks, bool settled = true);
    // The same segment in another process.
    static Result<std::shared_ptr<Segment>> map(Fd fd, bool settled = true);
    // All ranks have joined (spread, if there are several hosts): who is local is known, lines and heaps can be mapped.
    Status settle();

    int ranks() const { return header().ranks; }
    bool one_host() const { return header().spread.load(std::memory_order_acquire) == 0; }
    const std::vector<int>& locals() const { return locals_; }         // ranks of this host, ascending
    bool local(int rank) const { return places_[size_t(rank)] >= 0; }  // once settled
    int place(int rank) const { return places_[size_t(rank)]; }        // index among the locals
    const int* places() const { return places_.data(); }
    // Of ranks that have joined and whose rows are known here.
    bool same_process(int one, int other) const { return row(one).process == row(other).process; }
    bool one_process() const {
        for (int rank = 1; rank < ranks(); ++rank)
            if (!same_process(0, rank)) return false;
        return true;
    }
    // The rank for people: `rank 3 (pid 77)`, `rank 3 (pid 77 on node7)`.
    std::string name_of(int rank) const;

    SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(memory_.data()); }
    RankInfo& rank_info(int rank) const {
        return reinterpret_cast<RankInfo*>(memory_.data() + SegmentLayout::rank_infos())[rank];
    }
    // Of a host of several; for the leader to set, all of them.
    const HostInfo& host_info(int host) const {
        return reinterpret_cast<const HostInfo*>(memory_.data() + SegmentLayout{ranks(), 0}.host_infos())[host];
    }
    Status set_host_infos(const std::vector<HostInfo>& hosts);
    // What all ranks know alike and has no fixed length, as whoever writes it lays it out (control/agreed_texts.hpp):
    // rank 0 when it joins, and then, if there are several hosts, each host's leader once all have. texts_most bytes.
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

    // Memory of this rank's own heap, 64-byte aligned, zeroed, backed: thread-bound to the rank.
    Status back(int rank, size_t offset, size_t length) {
        return data_.back(heap_offset(place(rank)) + offset, length);
    }

    // Whether the rank's process lives, by a lock that the kernel drops when it ends. A rank of this process does, and
    // one of another host, of whose death its leader tells.
    bool alive(int rank) const;
    // Whether its process is stopped by a signal; of a rank of another host, when its leader last told.
    bool stopped(int rank) const;
    // The failure that the rank was told of, if it has called nothing since; else ok.
    Status returned_error(int rank) const;
    // For the leader: its process, or its whole host, has ended.
    void mark_dead(int rank);
    // Makes this process that of the rank, by taking the lock: from then on its death is seen. Mismatch if the rank has a
    // process already.
    Status claim(int rank);
    // Whether a process has claimed the rank and ended before it joined.
    bool died_joining(int rank) const;

    // What the ranks of this host may run on together.
    CpuSet cpus() const;
    // Cores that the ranks of this host may use together.
    int cores() const;

    // Records the first error and wakes everybody. Returns false if another was first.
    // `rank`: that reports it, -1: not known. Allocates nothing.
    bool raise(ErrorId error, int rank, std::string_view sentence, const FailureFacts& facts = {});
    bool raise(const Failure& failure, int rank) { return raise(failure.id, rank, failure.sentence, failure.facts); }
    bool raise(const Status& failure, int rank) { return raise(failure.failure(), rank); }
    // Of sites that have no id yet; goes when all rooms are converted.
    bool raise(weftResult_t code, int rank, std::string_view sentence) {
        return raise(other_error(code), rank, sentence);
    }
    bool aborted() const { return header().abort.state.load(std::memory_order_acquire) != 0; }
    // The recorded error; waits briefly if it is just being written.
    Status abort_status() const;

    // After a rank has published something that others may sleep for. A load of a line that rarely changes.
    void wake() {
        // The compiler keeps the order; the sleeper's membarrier makes the processor keep it (waiting.cpp).
        std::atomic_signal_fence(std::memory_order_seq_cst);
        if (header().sleepers.load(std::memory_order_relaxed) != 0) [[unlikely]]
            wake_sleepers();
    }
    void wake_sleepers();

    // Blobs that one rank leaves for others to fetch: how connections get their addresses. `key` names the blob among
    // those of its writer; at most oob_value_bytes long. Posting is thread-bound to the rank; find is null until it is
    // there.
    // An entry for a rank of another host is carried there by the leaders.
    struct alignas(64) OobEntry {
        uint64_t key;
        int32_t from, to;
        uint32_t bytes;
        std::byte data[100];
        uint32_t next;  // in the received entries: one more than the index of the next with the same hash, 0: none
    };
    static_assert(sizeof(OobEntry) == 128);
    static constexpr size_t oob_value_bytes = sizeof(OobEntry::data);
    static constexpr size_t oob_entries_max = 4096;  // of a rank
    // Of a host: what its ranks have connections for, and more.
    size_t oob_received_max() const {
        return std::min(size_t(1) << 18, (heap_bytes_ - oob_received_offset) / sizeof(OobEntry));
    }
    size_t connections_end() const {
        return heap_bytes_ - oob_entries_max * sizeof(OobEntry);
    }  // a rank's entries follow
    size_t heap_stride() const { return SegmentLayout{0, 0, heap_bytes_}.heap_stride(); }
    Status oob_put(int rank, int to, uint64_t key, const void* data, size_t bytes);
    const std::byte* oob_get(int rank, uint64_t key) const;
    // The leader's part: entries of a local rank from the index-th on that are for other hosts; and what came from
    // there.
    const OobEntry* next_outgoing_oob(int rank, uint32_t& index) const;
    Status oob_deliver(const OobEntry& entry);

    // Wakes the host's leader, who has something to read here. Nothing where there is one host.
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
    OobEntry* oob_entries(int place) const;
    // What came from other hosts lies in the leader's heap: heads of chains by a hash of sender and key, then entries.
    static constexpr size_t oob_received_offset = size_t(1) << 20;
    size_t oob_bucket_count() const;
    std::atomic<uint32_t>& oob_bucket(int from, uint64_t key) const;
    OobEntry* oob_received() const;

    SharedMemory memory_;  // header and rows
    SharedMemory data_;    // lines and heaps
    size_t heap_bytes_, rows_offset_, data_offset_;
    std::vector<int> locals_, places_;
    Fd doorbell_;
    std::mutex settling_;
    std::atomic<bool> settled_{false};  // release, pairs with alive()
};

// `ranks 3, 5 to 7 and 12`, shortened after some.
std::string ranks_text(const std::vector<int>& ascending);

// The inode of this process's pid namespace; 0: unknown.
uint64_t pid_namespace();
// Whether a process of this host is stopped by a signal.
bool process_stopped(int pid);

}  // namespace weft::internal
