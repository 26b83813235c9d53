#include "src/segment/oob_store.hpp"

#include <algorithm>
#include <cstring>

namespace weft::internal {

// Entries are backed with memory in steps.
static constexpr size_t backed_at_once = 32;

LocalOobStore::LocalOobStore(Heaps& heaps, int place, std::atomic<uint32_t>& count)
    : heaps_(&heaps),
      all_(reinterpret_cast<OobEntry*>(heaps.at(place) + heaps.connections_end())),
      place_(place),
      count_(&count) {}

Status LocalOobStore::put(int rank, int to, uint64_t key, const void* data, size_t bytes) {
    const uint32_t index = count_->load(std::memory_order_relaxed);
    if (index >= heaps_->layout().oob_entries() || bytes > OobEntry::value_bytes)
        return fail(error::internal_state,
                    "rank {} has no room for connection information of {} bytes ({} entries posted)", rank, bytes,
                    index);
    if (index % backed_at_once == 0)
        WEFT_TRY(heaps_->back(place_, heaps_->connections_end() + index * sizeof(OobEntry),
                              backed_at_once * sizeof(OobEntry)));
    OobEntry& entry = all_[index];
    entry.key = key;
    entry.from = rank;
    entry.to = to;
    entry.bytes = uint32_t(bytes);
    memcpy(entry.data, data, bytes);
    count_->store(index + 1, std::memory_order_release);  // pairs with entries()
    return ok();
}

uint32_t LocalOobStore::entries() const {
    return std::min(count_->load(std::memory_order_acquire),
                    uint32_t(heaps_->layout().oob_entries()));  // pairs with put()
}

const std::byte* LocalOobStore::get(uint64_t key) const {
    const uint32_t count = entries();
    for (const OobEntry* entry = all_; entry < all_ + count; ++entry)
        if (entry->key == key) return entry->data;
    return nullptr;
}

const OobEntry* LocalOobStore::next(uint32_t& index) const { return index < entries() ? &all_[index++] : nullptr; }

RemoteOobStore::RemoteOobStore(Heaps& heaps, std::atomic<uint32_t>& count)
    : heaps_(&heaps), heap_(heaps.at(heaps.leader_place())), count_(&count) {}

size_t RemoteOobStore::entries_max() const {
    return std::min(SegmentLayout::oob_received_most,
                    (heaps_->layout().leader_bytes() - entries_offset) / sizeof(OobEntry));
}

// About the number of entries of a host whose ranks have dozens of connections each, or with each rank if these are many.
size_t RemoteOobStore::bucket_count() const {
    const size_t each = size_t(std::max(64, heaps_->layout().ranks / 4));
    size_t heads = 1024;
    while (heads < each * size_t(heaps_->local_count()) && 2 * heads * sizeof(uint32_t) <= entries_offset) heads *= 2;
    return heads;
}

std::atomic<uint32_t>& RemoteOobStore::bucket(int from, uint64_t key) const {
    const uint64_t hash = (key ^ uint64_t(from) << 48) * 0x9e3779b97f4a7c15u >> 32;
    return reinterpret_cast<std::atomic<uint32_t>*>(heap_)[hash & (bucket_count() - 1)];
}

OobEntry* RemoteOobStore::entries() const { return reinterpret_cast<OobEntry*>(heap_ + entries_offset); }

const std::byte* RemoteOobStore::get(int peer, uint64_t key) const {
    if (count_->load(std::memory_order_acquire) == 0) return nullptr;  // pairs with deliver()
    const OobEntry* all = entries();
    for (uint32_t index = bucket(peer, key).load(std::memory_order_acquire); index > 0; index = all[index - 1].next)
        if (all[index - 1].key == key && all[index - 1].from == peer) return all[index - 1].data;
    return nullptr;
}

Status RemoteOobStore::deliver(const OobEntry& entry) {
    const uint32_t index = count_->load(std::memory_order_relaxed);
    if (index >= entries_max())
        return fail(error::internal_state,
                    "rank {} has no room for the address that rank {} sent it: {} have come to its host", entry.to,
                    entry.from, index);
    if (index == 0) WEFT_TRY(heaps_->back(heaps_->leader_place(), 0, bucket_count() * sizeof(uint32_t)));
    if (index % backed_at_once == 0)
        WEFT_TRY(heaps_->back(heaps_->leader_place(), entries_offset + index * sizeof(OobEntry),
                              backed_at_once * sizeof(OobEntry)));
    auto& head = bucket(entry.from, entry.key);
    OobEntry& place = entries()[index];
    place = entry;
    place.next = head.load(std::memory_order_relaxed);
    head.store(index + 1, std::memory_order_release);     // pairs with get()
    count_->store(index + 1, std::memory_order_release);  // pairs with get()
    return ok();
}

LocalOobStore OobStore::local(int rank) const {
    return {segment_->heaps(), segment_->place(rank), segment_->row(rank).oob_entries};
}

RemoteOobStore OobStore::remote() const { return {segment_->heaps(), segment_->header().oob_received}; }

Status OobStore::put(int rank, int to, uint64_t key, const void* data, size_t bytes) const {
    WEFT_TRY(local(rank).put(rank, to, key, data, bytes));
    segment_->wake();
    if (!segment_->local(to)) segment_->doorbell().ring();
    return ok();
}

const std::byte* OobStore::get(int rank, uint64_t key) const {
    return segment_->local(rank) ? local(rank).get(key) : remote().get(rank, key);
}

const OobEntry* OobStore::next_outgoing(int rank, uint32_t& index) const {
    const LocalOobStore store = local(rank);
    while (const OobEntry* entry = store.next(index))
        if (!segment_->local(entry->to)) return entry;
    return nullptr;
}

Status OobStore::deliver(const OobEntry& entry) const {
    WEFT_TRY(remote().deliver(entry));
    segment_->wake();
    return ok();
}

}  // namespace weft::internal
