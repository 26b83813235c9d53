// segment_layout.hpp: the parts of a host's shared segment: the structs that they hold, their sizes and offsets.
// Every process computes the same offsets from the rank count and the header.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/segment/networks.hpp"
#include "src/segment/rank_row.hpp"
#include "weft/types.h"

namespace weft::internal {

// WEFT_GPU_MULTICAST
enum MulticastUse : int32_t { multicast_off, multicast_always, multicast_if_faster };

struct AgreedGpuOptions {
    int32_t blocks;        // of a rank's kernel at most; 0: as many as are usual
    int32_t min_blocks;    // at least; 0: no limit
    int32_t block_policy;  // WEFT_BLOCK_POLICY_*
    int32_t threads;
    int32_t launch_order;
    int32_t graph_register;
    int32_t multicast;  // a MulticastUse
    GpuPath path;
    int64_t staging_bytes;  // of a rank
    int64_t packet_bytes;   // the longest all-reduce of floats by packets
};

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
    AgreedGpuOptions gpu;
    uint64_t user_algorithms;      // a digest, equal on all ranks
    int32_t algo_files_any_order;  // equal on all ranks
};

// Facts about the hosts that all ranks share.
struct AgreedFacts {
    int32_t hosts;
    int32_t machines;        // machines that these hosts are on: containers share one
    int32_t ranks_per_core;  // the maximum over the machines
    int64_t link_mbps;       // of the slowest host's network; 0: unknown, or all hosts are on one machine
    NetworkFacts network;    // that connects the hosts, with the least speed of a rank; mark 0: TCP
};

// Identity and location of each rank, local or remote, as known on this host.
struct RankInfo {
    std::atomic<uint64_t>
        claimant;  // the token of the process of this host that is to be this rank; 0: none yet (see Liveness::claim())
    std::atomic<int32_t> claimant_pid;  // for messages; 0: not stored yet
    std::atomic<int32_t> pid;           // 0: not joined (release, after the rest of its row)
    int32_t host;                       // index of its host; valid once the segment is settled
    int32_t cpu;                        // the first hardware thread that it may run on; -1: unknown
    Networks networks;                  // that it reaches: registry::own_networks()
};

// One per host of a communicator with several hosts.
struct HostInfo {
    char name[48];                // for messages
    int32_t leader;               // pid of its leader
    char listener_addresses[61];  // of its listener: net::PackedAddresses
};

// The first error of the communicator. Written once; every waiting rank polls `state`.
struct AbortRecord {
    alignas(
        64) std::atomic<uint32_t> state;  // 0 none, 1 being written, 2 written (release, pairs with Segment::aborted())
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
    // 1: the ranks of all hosts have joined, and rank_info() is complete (release, pairs with Segment::one_host())
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
    static constexpr size_t texts_bytes = size_t(2) << 20;  // control/agreed_texts.hpp has their layout
    // A rank puts an out-of-band entry for each connection. It may have connections with all ranks for four purposes:
    // messages, uneven collectives, windows and schedules.
    static constexpr int oob_entries_each = 4, oob_ranks_least = 1024;
    static constexpr size_t oob_entry_bytes = 192;
    // The leader's heap begins with hash buckets, and has room for the entries that other hosts send.
    static constexpr size_t oob_buckets_bytes = size_t(1) << 20, oob_received_most = size_t(1) << 20;

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
    // A rank's out-of-band entries, at the end of its heap.
    size_t oob_entries() const { return size_t(oob_entries_each) * size_t(std::max(ranks, oob_ranks_least)); }
    size_t oob_bytes() const { return oob_entries() * oob_entry_bytes; }
    size_t leader_bytes() const {
        if (heap_bytes < heap_bytes_most) return heap_bytes;  // address space is short
        const size_t received = std::min(oob_entries() * size_t(locals), oob_received_most);
        return std::max(heap_bytes, oob_buckets_bytes + received * oob_entry_bytes);
    }
    size_t lines_bytes() const { return flag_line_stride * flag_lines * size_t(locals); }
    size_t bytes() const { return round(heap(locals) + std::max(heap_stride(), leader_bytes())); }  // the last one

  private:
    static size_t round(size_t bytes) { return (bytes + 4095) & ~size_t(4095); }
};

}  // namespace weft::internal
