// gpu_device.hpp: the GPU of a rank, and its kernels, before the rank meets the others.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "src/drivers/cuda/context.hpp"
#include "src/gpu/domain/kernel_set.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct GpuDevice {
    const cuda::Driver* driver = nullptr;
    std::shared_ptr<const cuda::KernelSet> kernels;  // null: there is no device, or no kernels run on it
    cuda::Context bare;                              // of a device without kernels, whose memory is staged
    DeviceFacts facts{};
    std::string unsupported_reason;  // why device memory is not supported; empty: it is

    // As in GpuEngine::find(). Empty: no driver is used.
    static Result<std::optional<GpuDevice>> find(int which);
    int ordinal() const { return facts.ordinal; }
    const cuda::Context* context() const { return kernels ? &kernels->context() : bare.handle() ? &bare : nullptr; }
};

// Warns once per process for each reason, for any number of communicators and devices. The sentence names the first
// device.
void warn_of_device_once(const std::string& sentence, std::string reason);

}  // namespace weft::internal
