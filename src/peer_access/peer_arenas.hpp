// peer_arenas.hpp: other processes' arenas, where weftHostAlloc's memory lies, mapped when they are first asked for.
// Thread-bound to the rank.
#pragma once
#include <map>
#include <memory>

#include "src/segment/segment.hpp"

namespace weft::internal {

class PeerArenas {
  public:
    PeerArenas(Segment& group, int rank) : segment_(&group), rank_(rank) {}
    // Where that of a rank of this host lies here; null: it cannot be mapped, which the log says once.
    std::byte* of(int peer);
    // The same if its process has ever taken memory from it, or it is mapped already; else null.
    std::byte* if_used(int peer);

  private:
    Segment* segment_;
    int rank_;
    std::map<uint64_t, std::shared_ptr<SharedMemory>> arenas_;  // by process; null: it cannot be mapped
};

}  // namespace weft::internal
