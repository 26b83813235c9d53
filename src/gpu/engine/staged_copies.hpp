// staged_copies.hpp: the host copies of calls that are staged through host memory: of a call, and of the messages
// beside it. Thread-bound to the rank.
#pragma once
#include <memory>

#include "src/gpu/engine/device_launcher.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/gpu/engine/host_staging.hpp"

namespace weft::internal {

class StagedCopies final : public GpuStaging {
  public:
    // Both must outlive this object.
    StagedCopies(const JoinedGpu& gpu, DeviceLauncher& launcher) : gpu_(gpu), launcher_(launcher) {}

    Status copy_in(Copied which, std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes,
                   void* stream) override {
        WEFT_TRY(launcher_.take_stream(stream));
        auto& copies = copies_[size_t(which)];
        if (!copies) copies = std::make_unique<HostStaging>(*gpu_.device.context());
        return copies->begin(reads, writes, static_cast<CUstream>(stream));
    }
    void* at(Copied which, const void* on_device) const override { return copies_[size_t(which)]->at(on_device); }
    Status copy_out(Copied which) override { return copies_[size_t(which)]->end(); }
    uint64_t bytes() const override {
        uint64_t bytes = 0;
        for (const auto& copies : copies_)
            if (copies) bytes += copies->bytes();
        return bytes;
    }

  private:
    const JoinedGpu& gpu_;
    DeviceLauncher& launcher_;
    std::unique_ptr<HostStaging> copies_[2];  // by Copied, made at first use
};

}  // namespace weft::internal
