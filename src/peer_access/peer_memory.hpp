// peer_memory.hpp: maps a segment of another process of this host, by its name /proc/PID/fd/N.
#pragma once
#include <memory>

#include "src/base/shared_memory.hpp"

namespace weft::internal {

// The segment's name; travels between processes.
struct PeerMemory {
    int32_t pid, fd;   // the descriptor's number in that process
    uint64_t process;  // the token of that process
    uint64_t inode;
};

// The segment's descriptor. Thread-safe.
Result<Fd> open_peer_memory(const PeerMemory& where);

// Whether any page of the segment has been allocated. Thread-safe.
bool peer_memory_in_use(const PeerMemory& where);

// Maps a segment once per process, because it may take as much address space as the machine has memory. Fails if all
// such mappings together would exceed a quarter of the address space. Core dumps exclude the mapping. Thread-safe.
Result<std::shared_ptr<SharedMemory>> map_peer_memory(const PeerMemory& where);

}  // namespace weft::internal
