// remote_address.hpp: how a message of a host says where the bytes lie that it lends (docs/design/connections.md, Zero-copy), and who can
// read them there.
#pragma once
#include "src/segment/arena.hpp"

namespace weft::internal {

// What a rank can read of what another lends it.
struct CanRead {
    bool addresses = false;  // memory of the sender's process: it is its own, or the kernel copies
    bool arena = false;      // the sender's arena: it is mapped here
    bool any() const { return addresses || arena; }
};

// SlotInfo::address: an address of the sender's process, or, for other processes, with this bit where it lies in its arena.
inline constexpr uint64_t in_arena = uint64_t(1) << 63;

// 0: the reader could not read it, or should not. `kernel`: whether the kernel may copy, of other processes.
inline uint64_t remote_address(const void* data, size_t bytes, CanRead reader, bool same_process, bool kernel) {
    const uint64_t address = reader.addresses ? reinterpret_cast<uint64_t>(data) : 0;
    if (same_process) return address;
    if (const uint64_t place = reader.arena ? Arena::place_of(data, bytes) : 0; place != 0)
        return in_arena | (place - 1);
    return kernel && !(address & in_arena) ? address : 0;
}
// Null: the kernel has to copy it. `arena`: the sender's, as it is mapped here.
inline const std::byte* mapped_bytes(uint64_t address, const std::byte* arena, bool same_process) {
    if (same_process) return reinterpret_cast<const std::byte*>(address);
    return arena && (address & in_arena) ? arena + (address & ~in_arena) : nullptr;
}

}  // namespace weft::internal
