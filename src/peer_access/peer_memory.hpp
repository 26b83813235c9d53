// peer_memory.hpp: a segment that another process of this host has, mapped here by its name in that process.
#pragma once
#include <memory>

#include "src/base/shared_memory.hpp"

namespace weft::internal {

// Where it is to be found; travels between processes.
struct PeerMemory {
    int32_t pid, fd;   // a number of that process
    uint64_t process;  // its token
    uint64_t inode;
};

// Its descriptor. Thread-safe.
Result<Fd> open_peer_memory(const PeerMemory& where);

// Whether any of its pages has been taken. Thread-safe.
bool peer_memory_in_use(const PeerMemory& where);

// Mapped once here whoever wants it: a map may take as much address space as the machine has memory. All together take a
// quarter of the address space at most, then it is refused. Core dumps leave it out. Thread-safe.
Result<std::shared_ptr<SharedMemory>> map_peer_memory(const PeerMemory& where);

}  // namespace weft::internal
