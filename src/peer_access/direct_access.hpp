// direct_access.hpp: which of a rank's buffers the other ranks of its host can read and write in place, and where they lie
// here. Ranks of one process reach everything of each other. Ranks of different processes reach what lies in
// weftHostAlloc's arenas, once all have agreed that each has mapped all (docs/design/shared-memory-protocol.md, rule 7).
// Thread-bound to the rank.
#pragma once
#include <vector>

#include "src/peer_access/peer_arenas.hpp"

namespace weft::internal {

class DirectAccess {
  public:
    enum class State { unknown, ready, refused };  // the same on all ranks at the same operation

    DirectAccess(Segment& host, int rank, bool allowed);

    State state() const { return state_; }
    // The rank's own address as peers are told it; 0: they cannot reach these bytes.
    uint64_t export_buffer(const void* address, size_t bytes) const;
    // Where what `rank` offered lies in this process.
    std::byte* translate(int rank, uint64_t offered) const {
        return one_process_ ? reinterpret_cast<std::byte*>(offered) : arenas_[size_t(rank)] + (offered - 1);
    }
    // This rank's part of agreeing: maps every other process's arena. Slow, once. False: some cannot be mapped.
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
