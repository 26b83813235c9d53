// peer_access.hpp: how this rank reads the memory of each other rank of its host: as memory of the same process, in a mapped
// arena of weftHostAlloc, or by CMA. Each rank decides for itself, once for each peer.
#pragma once
#include <map>

#include "src/peer_access/cma.hpp"
#include "src/peer_access/peer_arenas.hpp"
#include "src/peer_access/remote_address.hpp"

namespace weft::internal {

// Owned by the planner, for messages, and by OneSided, for windows. Thread-bound to the rank.
class PeerAccess {
  public:
    struct Settings {
        bool arenas;  // may map other processes' arenas
        bool cma;     // may use CMA
    };
    PeerAccess(Segment& host, int rank, const Settings& settings)
        : host_(&host), rank_(rank), settings_(settings), arenas_(host, rank), cma_(host, rank) {}

    // How this rank can read zero-copy messages of a peer. It maps the peer's arena only if that has memory in use.
    CanRead can_read(int peer);
    // The arena of another process of this host as mapped here; null: there is none, or it cannot be mapped.
    std::byte* arena(int peer) { return maps_arena(peer) ? arenas_.of(peer) : nullptr; }
    std::byte* arena_in_use(int peer) { return maps_arena(peer) ? arenas_.if_used(peer) : nullptr; }
    // Whether this rank can read and write a peer's private memory by CMA.
    bool cma_works(int peer);
    const Cma& cma() const { return cma_; }

  private:
    bool maps_arena(int peer) const {
        return settings_.arenas && host_->local(peer) && !host_->same_process(rank_, peer);
    }

    Segment* host_;
    int rank_;
    Settings settings_;
    PeerArenas arenas_;
    Cma cma_;
    std::map<int, bool> cma_works_;  // by rank, once tried
};

}  // namespace weft::internal
