// device_buffers.hpp: where the buffers of a call lie, and whether calls on them can be served; or the sentence what to
// change. Thread-bound to the rank.
#pragma once
#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/gpu/engine/gpu_engine.hpp"

namespace weft::internal {

// Host memory that was asked about before, for ranks without a device, whose calls shall not pay for those that have
// one: only addresses that CUDA did not know and that could be read.
class HostAddresses {
  public:
    bool contains(const void* address) const { return table_[place(address)] == address; }
    void insert(const void* address) { table_[place(address)] = address; }

  private:
    static size_t place(const void* address) {
        return reinterpret_cast<uintptr_t>(address) * 0x9e3779b97f4a7c15u >> 60;
    }
    const void* table_[16] = {};
};

class DeviceBuffers {
  public:
    // `own`: of the communicator's device; null: it has none. It outlives this.
    DeviceBuffers(const cuda::Driver& driver, const cuda::Context* own, int rank)
        : driver_(&driver), own_(own), rank_(rank) {}

    // `unsupported_reason`: why device memory is not served; empty: it is.
    Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive, bool stream,
                                         const std::string& unsupported_reason);

    // See GpuEngine.
    Result<uint64_t> room(const DeviceArgument& argument, const std::string& unsupported_reason);

  private:
    Result<CUcontext> any_context();
    Result<cuda::PointerFacts> describe(const DeviceArgument& argument);
    Status check(const DeviceArgument& argument, const cuda::PointerFacts& at,
                 const std::string& unsupported_reason) const;

    const cuda::Driver* driver_;
    const cuda::Context* own_;
    int rank_;
    HostAddresses host_addresses_;
    cuda::Context other_context_;  // to ask in, of a rank without a device
};

}  // namespace weft::internal
