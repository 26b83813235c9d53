// direct_access.hpp: access to peers' buffers in mapped memory, and the addresses that ranks exchange for it.
// Ranks of one process access all memory of each other. Ranks of different processes access weftHostAlloc's arenas, once
// all have agreed that each has mapped all (docs/design/shared-memory-protocol.md, rule 7). Thread-bound to the rank.
#pragma once
#include <vector>

#include "src/peer_access/peer_arenas.hpp"

namespace weft::internal {

class DirectAccess {
  public:
    enum class State { unknown, ready, refused };  // the same on all ranks at the same operation

    DirectAccess(Segment& host, int rank, bool allowed);

    State state() const { return state_; }
    // The form of this rank's address for peers; 0: they cannot access these bytes.
    uint64_t export_buffer(const void* address, size_t bytes) const;
    // The address in this process of memory that `rank` exported.
    std::byte* translate(int rank, uint64_t exported) const {
        return one_process_ ? reinterpret_cast<std::byte*>(exported) : arenas_[size_t(rank)] + (exported - 1);
    }
    // This rank's part of the agreement: maps every other process's arena. Slow, once. False: some cannot be mapped.
    bool map_arenas();
    void agree(bool all_have_mapped);

  private:
    Segment* host_;
    int rank_;
    bool one_process_ = true;
    State state_;
    PeerArenas peers_;
    std::vector<std::byte*> arenas_;  // by rank
};

}  // namespace weft::internal
