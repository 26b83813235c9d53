// window_calls.hpp: windows of device memory, and one-sided calls on them: one kernel per call (docs/design/rma.md).
// Thread-bound to the rank.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "src/gpu/engine/device_launcher.hpp"
#include "src/gpu/engine/device_windows.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/gpu/kernels/access_arguments.hpp"

namespace weft::internal {

class WindowCalls final : public GpuWindows {
  public:
    // Both must outlive this object.
    WindowCalls(JoinedGpu& gpu, DeviceLauncher& launcher) : gpu_(gpu), launcher_(launcher) {}

    Status fits(const void* address, size_t bytes, bool mapped) const override;
    Status open(uint32_t number, void* address, size_t bytes, WindowPart& part) override;
    Result<bool> reach(uint32_t number, std::span<const WindowPart> parts) override;
    std::vector<int> missing(uint32_t number) const override;
    bool switches(uint32_t number, std::span<const WindowPart> parts) override;
    bool advance_switch(uint32_t number, std::vector<cuda::SwitchEntry>& entries) override;
    void begin_to_close(uint32_t number) override;
    bool closed(uint32_t number) override;
    Status prepare(const DeviceAccess& access) override;
    Status launch(const DeviceAccess& access) override;

  private:
    DeviceWindows& windows();
    Status enqueue_waits(const cuda::LaunchShape& shape, void* stream);
    Status enqueue_transfer(const OneSidedCall& call, cuda::LaunchShape shape, void* stream, int blocks_max);

    JoinedGpu& gpu_;
    DeviceLauncher& launcher_;
    std::unique_ptr<DeviceWindows> windows_;  // null until there is one
    cuda::AccessArguments arguments_{};
    std::vector<SignalWait> waits_;  // of the current call
};

}  // namespace weft::internal
