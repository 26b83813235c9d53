// partial_results.hpp: what a reduce-scatter of uneven parts holds on one rank: every other rank's contribution to its part,
// side by side until all are there, and its own scaled, if it scales. One place sees all, so they are added in rank
// order.
#pragma once
#include <vector>

#include "src/base/operation.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/p2p/peer_buffers.hpp"

namespace weft::internal {

// Thread-bound to the rank. Its memory is kept for the next call.
class PartialResults {
  public:
    // The sends are of all ranks, the rank's own among them; of the one receive the peer does not count.
    // `operand`: as Run::start() has it.
    void begin(const Operation& operation, const void* operand, const PeerBuffers& peer_buffers, int rank,
               const CpuKernels& cpu_kernels);
    // Where a rank's contribution to our part goes.
    void* from(int peer) { return received_.data() + size_t(peer) * stride_; }
    // What a rank gets of ours.
    const void* to(const PeerBuffer& peer_buffer) const;
    // All are there. Throws UserReductionFailed.
    void reduce();
    size_t heap_bytes() const { return received_.capacity() + scaled_.capacity(); }

  private:
    Operation operation_;
    const void* operand_ = nullptr;
    const CpuKernels* cpu_kernels_ = nullptr;
    PeerBuffer result_{};
    int rank_ = 0;
    size_t stride_ = 0;
    std::vector<std::byte> received_, scaled_;
    std::vector<size_t> scaled_places_;  // by rank
    std::vector<const void*> sources_;   // likewise
};

}  // namespace weft::internal
