// oob_store.hpp: the out-of-band key-value store of a communicator, by which ranks exchange connection addresses before
// they have connections: put(key, bytes) and get(peer, key). Ranks of one host read each other's entries in shared
// memory. Entries for ranks of other hosts are carried there by the control plane (control/oob_forwarder.hpp).
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "src/segment/segment.hpp"

namespace weft::internal {

struct alignas(64) OobEntry {
    static constexpr size_t value_bytes = 168;
    uint64_t key;
    int32_t from, to;
    uint32_t bytes;
    std::byte data[value_bytes];
    uint32_t next;  // in RemoteOobStore: one more than the index of the next entry in this bucket; 0: none
};
static_assert(sizeof(OobEntry) == SegmentLayout::oob_entry_bytes);

// The entries that a rank of this host has put. A view of the end of the rank's heap.
class LocalOobStore {
  public:
    // `place`: of the rank's heap. `count`: RankRow::oob_entries.
    LocalOobStore(Heaps& heaps, int place, std::atomic<uint32_t>& count);
    // Thread-bound to the rank. `key` is unique among its entries.
    Status put(int rank, int to, uint64_t key, const void* data, size_t bytes);
    // Null until the entry is there.
    const std::byte* get(uint64_t key) const;
    // The entry number `index`, which it increments; null: there is none yet.
    const OobEntry* next(uint32_t& index) const;

  private:
    uint32_t entries() const;

    Heaps* heaps_;
    OobEntry* all_;
    int place_;
    std::atomic<uint32_t>* count_;
};

// The entries that other hosts' ranks have put for ranks of this host. A view of the leader's heap: heads of buckets by
// a hash of sender and key, then the entries.
class RemoteOobStore {
  public:
    // `count`: SegmentHeader::oob_received.
    RemoteOobStore(Heaps& heaps, std::atomic<uint32_t>& count);
    size_t entries_max() const;
    // For the leader.
    Status deliver(const OobEntry& entry);
    // Null until the entry is there.
    const std::byte* get(int peer, uint64_t key) const;

  private:
    static constexpr size_t entries_offset = SegmentLayout::oob_buckets_bytes;
    size_t bucket_count() const;
    std::atomic<uint32_t>& bucket(int from, uint64_t key) const;
    OobEntry* entries() const;

    Heaps* heaps_;
    std::byte* heap_;
    std::atomic<uint32_t>* count_;
};

// The store as a host's ranks and its leader use it: a view of the segment, which must be settled and outlive it.
// Thread-safe, except that put() is thread-bound to `rank`, and deliver() to the leader.
class OobStore {
  public:
    explicit OobStore(Segment& segment) : segment_(&segment) {}

    // `key` is unique among the entries of `rank`.
    Status put(int rank, int to, uint64_t key, const void* data, size_t bytes) const;
    // Null until the entry is there: a rank of this host writes it into shared memory, the control plane delivers that
    // of another host.
    const std::byte* get(int rank, uint64_t key) const;
    // For the leader: the next entry of a local rank, from `index` on, for another host; and delivery of a received
    // entry.
    const OobEntry* next_outgoing(int rank, uint32_t& index) const;
    Status deliver(const OobEntry& entry) const;

  private:
    LocalOobStore local(int rank) const;
    RemoteOobStore remote() const;

    Segment* segment_;
};

}  // namespace weft::internal
