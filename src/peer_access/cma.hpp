// cma.hpp: cross-memory attach (CMA): process_vm_readv and process_vm_writev on other ranks' private memory.
// One copy instead of two through a slot, but the kernel looks up the pages at every call. The ranks agree once whether
// each may access each other's memory (docs/design/shared-memory-protocol.md, rule 7). Thread-bound to the rank.
#pragma once
#include "src/base/result.hpp"
#include "src/peer_access/direct_access.hpp"

namespace weft::internal {

class Cma {
  public:
    using State = DirectAccess::State;  // the same on all ranks at the same operation

    Cma(Segment& host, int rank) : host_(&host), rank_(rank) {}

    State state() const { return state_; }
    // This rank's part of the agreement: reads a known word from every other process.
    bool probe() const;
    // The same for one other rank.
    bool probe(int other) const;
    void agree(bool all_can);

    // Call it before and after each read of a sender's zero-copy bytes. False: some rank has left, so the sender's
    // memory may have changed, and the bytes must not be used (docs/design/shared-memory-protocol.md, rule 9b).
    bool remote_memory_valid() const;

    // `address` is valid in the process of `rank`.
    Status read(int rank, void* to, uint64_t address, size_t bytes) const;
    Status write(int rank, const void* from, uint64_t address, size_t bytes) const;

  private:
    Segment* host_;
    int rank_;
    State state_ = State::unknown;
};

}  // namespace weft::internal
