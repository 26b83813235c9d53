// flag_block.cpp: a flag block in the shared segment of a host.
#include <algorithm>
#include <bit>

#include "src/segment/flag_block.hpp"

namespace weft::internal {

FlagBlock::FlagBlock(Segment& host, int rank)
    : host_(&host),
      lines_(host.heaps().lines()),
      heaps_(host.heaps().at(0)),
      heap_stride_(host.heaps().stride()),
      places_(host.one_host() ? nullptr : host.places()),
      locals_(int(host.locals().size())),
      rank_(rank) {}

Result<std::unique_ptr<FlagBlock>> FlagBlock::open(Segment& host, int rank, bool slots_later) {
    auto flag_block = std::make_unique<FlagBlock>(host, rank);
    if (!slots_later) WEFT_TRY(flag_block->reserve(slot_bytes_first));
    return flag_block;
}

FlagBlock::Rotation FlagBlock::rotation(size_t tile_bytes, int ranks, bool in_order) {
    constexpr size_t rotated_least = 2048;           // shorter ones cost no more than their line
    constexpr size_t room_of_all = size_t(1) << 20;  // of one slot of all ranks
    size_t room = slot_bytes_first;
    if (tile_bytes >= rotated_least) room = std::max(room, room_of_all / size_t(ranks));
    if (tile_bytes > 0 && 2 * tile_bytes <= room)
        return {uint32_t(std::bit_floor(room / tile_bytes) - 1), uint32_t(tile_bytes)};
    // Large tiles use as little memory as possible: the slots of all ranks displace data in the last-level cache.
    return {0, uint32_t(tile_bytes), in_order ? 2u : flag_slots};
}

Status FlagBlock::reserve(size_t bytes, uint32_t slots) {
    if (bytes > slot_bytes_max)
        return fail(error::internal_state, "a flag block was asked for a slot of {} bytes; the limit is {}", bytes,
                    slot_bytes_max);
    for (uint32_t slot = 0; slot < slots; ++slot) {
        if (bytes <= reserved_[slot]) continue;
        WEFT_TRY(host_->heaps().back(host_->place(rank_), slot_stride * slot, bytes));
        reserved_[slot] = bytes;
    }
    return ok();
}

}  // namespace weft::internal
