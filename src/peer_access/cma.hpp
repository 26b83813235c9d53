// cma.hpp: copies between this process and private memory of other ranks' processes, made by the kernel
// (cross-memory attach: process_vm_readv and process_vm_writev). One copy instead of two through a slot, and no line
// bounces between caches to be staged again; but pages are looked up at every call. Whether every rank may do it to
// every other is agreed once, in the flag block's agreement round (docs/design/shared-memory-protocol.md, rule 7). Thread-bound to the rank.
#pragma once
#include "src/base/result.hpp"
#include "src/peer_access/direct_access.hpp"

namespace weft::internal {

class Cma {
  public:
    using State = DirectAccess::State;  // likewise the same on all ranks at the same operation

    Cma(Segment& host, int rank) : host_(&host), rank_(rank) {}

    State state() const { return state_; }
    // This rank's part of agreeing: reads a word that it knows from every other process.
    bool probe() const;
    // The same of one other rank.
    bool probe(int other) const;
    void agree(bool all_can);

    // To be asked before and after what a peer lends is read. False: some rank has left, and the sender perhaps has its
    // memory back: nothing may be read, and nothing that was counts (docs/design/shared-memory-protocol.md, rule 9b).
    bool remote_memory_valid() const;

    // `address` is the rank's own, in its process.
    Status read(int rank, void* to, uint64_t address, size_t bytes) const;
    Status write(int rank, const void* from, uint64_t address, size_t bytes) const;

  private:
    Segment* host_;
    int rank_;
    State state_ = State::unknown;
};

}  // namespace weft::internal
