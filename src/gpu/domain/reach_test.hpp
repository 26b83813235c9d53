// reach_test.hpp: tests that the ranks of a host reach each other's memory: each rank reads a value of every peer and
// writes a value to every peer, by kernels. Thread-bound to the rank.
#pragma once
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/domain/domain_memory.hpp"

namespace weft::internal::cuda {

class ReachTest {
  public:
    // `memory` and `ranks` must outlive this object.
    ReachTest(const DomainRanks& ranks, const DomainMemory& memory) : ranks_(ranks), memory_(memory) {}

    Status begin();
    // Destroys the stream; its context must be current. Copies and kernels on it may still run after a failure.
    void end() { stream_ = Stream(); }
    void synchronize_after_failure() const {
        if (stream_) (void)stream_.synchronize();
    }

    // Clears the rank's own device memory, as far as peers read it.
    Status clear();
    // Writes the values that peers will read here, and that this rank will write to them.
    Status write();
    // Enqueues the accesses to a peer's memory.
    Status access(int peer);
    // Copies the programs of step machines to the device. They are copied now: a first call may be captured, and the
    // copy would be captured with it.
    Status write_programs();
    Status synchronize() const { return stream_.synchronize(); }
    // Whether the values are right. `unreached`: by bit, ranks whose memory some rank does not reach. Fails if they
    // cannot be read; `fault` is the first wrong value.
    Status check(uint64_t& unreached, Status& fault);

  private:
    Status copy_by_kernel(CUdeviceptr to, CUdeviceptr from);
    const Driver& driver() const { return memory_.kernels().driver(); }
    CUdeviceptr probe_of(int rank) const { return memory_.base(rank) + memory_.layout().probe; }

    const DomainRanks& ranks_;
    const DomainMemory& memory_;
    Stream stream_;
};

}  // namespace weft::internal::cuda
