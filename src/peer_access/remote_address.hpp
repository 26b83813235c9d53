// remote_address.hpp: the address in a zero-copy message, and the ranks that can read it (docs/design/connections.md,
// Zero-copy).
#pragma once
#include "src/segment/arena.hpp"

namespace weft::internal {

// The sender's memory that a receiver can read.
struct CanRead {
    bool addresses = false;  // all of the sender's process: the two ranks share it, or the receiver uses CMA
    bool arena = false;      // the sender's arena, which is mapped in the receiver's process
    bool any() const { return addresses || arena; }
};

// SlotInfo::address is an address in the sender's process, or this bit and an offset in the sender's arena.
inline constexpr uint64_t in_arena = uint64_t(1) << 63;

// 0: the reader cannot read it, or should not. `kernel`: whether a reader in another process may use CMA.
inline uint64_t remote_address(const void* data, size_t bytes, CanRead reader, bool same_process, bool kernel) {
    const uint64_t address = reader.addresses ? reinterpret_cast<uint64_t>(data) : 0;
    if (same_process) return address;
    if (const uint64_t place = reader.arena ? Arena::place_of(data, bytes) : 0; place != 0)
        return in_arena | (place - 1);
    return kernel && !(address & in_arena) ? address : 0;
}
// Null: the bytes need CMA. `arena`: the sender's, as it is mapped here.
inline const std::byte* mapped_bytes(uint64_t address, const std::byte* arena, bool same_process) {
    if (same_process) return reinterpret_cast<const std::byte*>(address);
    return arena && (address & in_arena) ? arena + (address & ~in_arena) : nullptr;
}

}  // namespace weft::internal
