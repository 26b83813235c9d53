// partial_results.hpp: the contributions of all ranks to one rank's part of an uneven reduce-scatter. They are stored side
// by side and reduced in rank order once all have arrived. A rank's own contribution is stored scaled, if the call scales.
#pragma once
#include <vector>

#include "src/base/operation.hpp"
#include "src/kernels/cpu_kernels.hpp"
#include "src/p2p/peer_buffers.hpp"

namespace weft::internal {

// Thread-bound to the rank. It keeps its memory for the next call.
class PartialResults {
  public:
    // The sends are to all ranks, this rank included. The peer of the single receive is ignored. `operand`: as in
    // Run::start().
    void begin(const Operation& operation, const void* operand, const PeerBuffers& peer_buffers, int rank,
               const CpuKernels& cpu_kernels);
    // The buffer for a rank's contribution to our part.
    void* from(int peer) { return received_.data() + size_t(peer) * stride_; }
    // Our contribution to a rank's part.
    const void* to(const PeerBuffer& peer_buffer) const;
    // Call once all contributions have arrived. Throws UserReductionFailed.
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
    std::vector<const void*> sources_;   // by rank
};

}  // namespace weft::internal
