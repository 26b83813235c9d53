// joined_gpu.hpp: the GPU of a rank, joined with those of the other ranks: the resources that all calls on device
// memory use. Thread-bound to the rank.
#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "src/gpu/domain/buffer_registry.hpp"
#include "src/gpu/domain/domain.hpp"
#include "src/gpu/engine/device_failure.hpp"
#include "src/gpu/engine/device_plan.hpp"
#include "src/gpu/engine/gpu_device.hpp"
#include "src/gpu/proxy/device_network.hpp"
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
    std::string copies_reason;
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
    }
    // Calls are staged through host memory, for this reason, which is equal on all ranks.
    void use_copies(std::string why) {
        copies_reason = std::move(why);
        copies = true;
        sharing = false;  // no stream waits for another stream's kernels
        buffer_registry.reset();
        network.reset();
        if (domain) cuda::Domain::retire(std::move(domain));
    }
    // The same, with a warning of rank 0: something that should work does not.
    void fall_to_copies(const std::string& why) {
        if (rank == 0)
            warn_of_device_once("device memory is copied to the host's and back, which is slow: " + why, why);
        use_copies(why);
    }
};

}  // namespace weft::internal
