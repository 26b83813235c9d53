// staged_calls.hpp: calls on device memory that no kernel of Weft serves.
// The buffers are copied to the host, the call runs on host memory, and the results are copied back.
// docs/design/gpu-domain.md.
#pragma once
#include "src/comm/call.hpp"
#include "src/comm/engines/call_engine.hpp"

namespace weft::internal {

// Owned by ActiveCalls. Thread-bound to the rank. Needs RankContext::device.
class StagedCalls {
  public:
    explicit StagedCalls(RankContext& context) : context_(context) {}

    // Copies the buffers of `call` to the host and points the call at the copies.
    Begun copy_in(Call& call);
    // The same for those of `messages` that are copied.
    Begun copy_in(std::vector<Call>& messages);
    // Copies the results back.
    Status copy_out() { return context_.device->staging().copy_out(GpuStaging::Copied::call); }
    Status copy_out_messages() { return context_.device->staging().copy_out(GpuStaging::Copied::messages); }
    Status take_failure() { return std::move(failure_); }

  private:
    Begun copied(Status copy);
    Begun read_counts(const Call& call, const UnevenCall& collective);

    RankContext& context_;
    PeerBuffers peer_buffers_;  // of the call, on the host
    Status failure_;
};

}  // namespace weft::internal
