// engine_copies.hpp: collectives whose data copy engines move (docs/design/gpu-copies.md). Thread-bound to the rank.
#pragma once
#include "src/gpu/engine/device_launcher.hpp"
#include "src/gpu/engine/gpu_calls.hpp"

namespace weft::internal {

class EngineCopies final : public GpuCopies {
  public:
    // Both must outlive this object.
    EngineCopies(JoinedGpu& gpu, DeviceLauncher& launcher) : gpu_(gpu), launcher_(launcher) {}

    bool wanted(const Operation& operation, const CallSettings& settings) override;
    CopyOffer offer(const DeviceCall& call) override;
    bool agreed(const DeviceCall& call, std::span<const CopyOffer> offers) override;
    Status launch(const DeviceCall& call, std::span<const CopyOffer> offers, uint32_t fingerprint) override;

  private:
    CopyRefusal find_send_buffer(const DeviceCall& call, CopyOffer& offer);
    // Rank 0 logs each reason once.
    void log_refusal(const Operation& operation, CopyRefusal refusal, int rank);

    JoinedGpu& gpu_;
    DeviceLauncher& launcher_;
    uint32_t logged_ = 0;  // by bit: the refusals
};

}  // namespace weft::internal
