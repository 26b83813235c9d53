// device_buffers.hpp: finds out in which memory the buffers of a call are, and whether the call is supported. The error
// says what to change. Thread-bound to the rank.
#pragma once
#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/gpu/engine/gpu_engine.hpp"

namespace weft::internal {

// Known host addresses, so that calls of ranks without a device do not pay for queries. It holds only addresses that
// CUDA did not know and that could be read.
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
    // `own`: the context of the communicator's device; null: it has none. It must outlive this object.
    DeviceBuffers(const cuda::Driver& driver, const cuda::Context* own, int rank)
        : driver_(&driver), own_(own), rank_(rank) {}

    // `unsupported_reason`: why device memory is not supported; empty: it is.
    Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive, bool stream,
                                         const std::string& unsupported_reason);

    // See GpuEngine::room().
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
    cuda::Context other_context_;  // for queries of a rank without a device
};

}  // namespace weft::internal
