// joined_gpu.hpp: the GPU of a rank, joined with those of the other ranks: the resources that all calls on device
// memory use. Thread-bound to the rank.
#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "src/gpu/domain/buffer_registry.hpp"
#include "src/gpu/domain/domain.hpp"
#include "src/gpu/engine/device_failure.hpp"
#include "src/gpu/engine/device_network.hpp"
#include "src/gpu/engine/device_plan.hpp"
#include "src/gpu/engine/gpu_device.hpp"
#include "src/planning/machines.hpp"
#include "src/selector/catalog.hpp"

namespace weft::internal {

constexpr uint64_t nanoseconds_of(int64_t milliseconds) {
    return uint64_t(std::min(milliseconds, INT64_MAX / 1'000'000)) * 1'000'000;
}

struct JoinedGpu {
    GpuDevice device;
    std::shared_ptr<Segment> group;  // null: the ranks have not met
    int rank = 0;
    bool copies = false;  // see GpuEngine
    std::unique_ptr<cuda::Domain> domain;
    std::shared_ptr<const Catalog> catalog;
    std::shared_ptr<const Machines> machines;
    DeviceLayout layout;
    bool sharing = false;          // another rank of this process uses this device
    bool exports_buffers = false;  // ranks access each other's memory: large buffers can be used in place
    std::unique_ptr<cuda::BufferRegistry> buffer_registry;
    std::unique_ptr<DeviceNetwork> network;  // null: one host
    uint64_t timeout_ns = 0;
    PlannedOperations known;

    explicit JoinedGpu(GpuDevice found) : device(std::move(found)) {}
    const cuda::KernelSet& kernels() const { return *device.kernels; }
    const std::string& unsupported_reason() const { return device.unsupported_reason; }
    // Device memory is not supported, for this reason.
    void disable(std::string why) {
        device.unsupported_reason = std::move(why);
        copies = false;
        buffer_registry.reset();
        network.reset();
        if (domain) cuda::Domain::retire(std::move(domain));
    }
    // The reason why calls are staged, for all ranks.
    const char* why_copies() const {
        return group->header().agreed.gpu.path == GpuPath::copies
                   ? "WEFT_GPU_PATH is copies"
                   : "no kernels of Weft's run on some rank's device, as its log says";
    }
};

}  // namespace weft::internal
