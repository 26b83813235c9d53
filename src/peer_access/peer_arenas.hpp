// peer_arenas.hpp: the arenas of other processes, from which weftHostAlloc allocates, mapped at first use.
// Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>

#include "src/segment/segment.hpp"

namespace weft::internal {

class PeerArenas {
  public:
    PeerArenas(Segment& group, int rank) : segment_(&group), rank_(rank) {}
    // The arena of a rank of this host as mapped here; null: it cannot be mapped, which is logged once.
    std::byte* of(int peer);
    // The same if its process has ever allocated from it, or if it is mapped already; otherwise null.
    std::byte* if_used(int peer);

  private:
    Segment* segment_;
    int rank_;
    std::map<uint64_t, std::shared_ptr<SharedMemory>> arenas_;  // by process token; null: it cannot be mapped
};

}  // namespace weft::internal
