#include "src/peer_access/peer_arenas.hpp"

#include "src/base/log.hpp"
#include "src/peer_access/peer_memory.hpp"

namespace weft::internal {

std::byte* PeerArenas::of(int peer) {
    const RankRow& row = segment_->row(peer);
    const auto [place, fresh] = arenas_.try_emplace(row.process);
    if (fresh) {
        auto memory = map_peer_memory({row.pid, row.arena_fd, row.process, row.arena_inode});
        if (memory)
            place->second = std::move(*memory);
        else
            WEFT_LOG_RANK(rank_, info, shm, "weftHostAlloc's memory of rank {} (pid {}) cannot be mapped: {}", peer,
                          row.pid, memory.status().sentence());
    }
    return place->second ? place->second->data() : nullptr;
}

std::byte* PeerArenas::if_used(int peer) {
    const RankRow& row = segment_->row(peer);
    const bool wanted =
        arenas_.count(row.process) != 0 || peer_memory_in_use({row.pid, row.arena_fd, row.process, row.arena_inode});
    return wanted ? of(peer) : nullptr;
}

}  // namespace weft::internal
