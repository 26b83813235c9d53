// reach_test.hpp: tests that the ranks of a domain reach each other's memory: each rank reads a value of every peer and
// writes a value to every peer, by kernels. Thread-bound to the rank.
#pragma once
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/domain_memory.hpp"

namespace weft::internal::cuda {

// The tested memory. The vectors must outlive the test.
struct ReachedMemory {
    int rank;                               // whose test this is
    const std::vector<int>& ranks;          // the ranks that take part
    const std::vector<CUdeviceptr>& bases;  // by rank; 0: not mapped
    size_t probe;                           // where a ReachProbe lies in each rank's
    size_t cleared;                         // bytes from the beginning that clear() clears
};

class ReachTest {
  public:
    // `memory` has the kernels and the rank's reports. It must outlive this object.
    ReachTest(const DomainMemory& memory, const ReachedMemory& tested) : memory_(memory), tested_(tested) {}

    Status begin();
    // Destroys the stream; its context must be current. Copies and kernels on it may still run after a failure.
    void end() { stream_ = Stream(); }
    void synchronize_after_failure() const {
        if (stream_) (void)stream_.synchronize();
    }

    // Clears the rank's own memory, as far as peers read it.
    Status clear();
    // Writes the values that peers will read here, and that this rank will write to them.
    Status write();
    // Enqueues the accesses to a peer's memory.
    Status access(int peer);
    // Copies the programs of step machines to the device. They are copied now: a first call may be captured, and the
    // copy would be captured with it.
    Status write_programs();
    Status synchronize() const { return stream_.synchronize(); }
    // Whether the values are right. `unreached`: ranks whose memory some rank does not reach. Fails if they
    // cannot be read; `fault` is the first wrong value.
    Status check(RankBits& unreached, Status& fault);

  private:
    Status copy_by_kernel(CUdeviceptr to, CUdeviceptr from);
    const Driver& driver() const { return memory_.kernels().driver(); }
    CUdeviceptr probe_of(int rank) const { return tested_.bases[size_t(rank)] + tested_.probe; }

    const DomainMemory& memory_;
    const ReachedMemory tested_;
    Stream stream_;
};

}  // namespace weft::internal::cuda
