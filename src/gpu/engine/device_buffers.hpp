// device_buffers.hpp: finds out in which memory the buffers of a call are, and whether the call is supported. The error
// says what to change. It also registers buffers. Thread-bound to the rank.
#pragma once
#include "src/base/options.hpp"
#include "src/drivers/cuda/context.hpp"
#include "src/drivers/cuda/pointer.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/gpu/engine/joined_gpu.hpp"

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

class DeviceBuffers final : public GpuBuffers {
  public:
    // `gpu` must outlive this object.
    explicit DeviceBuffers(JoinedGpu& gpu) : gpu_(gpu) {}

    Result<BufferPlacement> placement_of(const DeviceArgument& send, const DeviceArgument& receive,
                                         const void* stream) override;
    Result<uint64_t> room(const DeviceArgument& argument) override;
    std::optional<int> add(const void* address, size_t bytes) override;
    Status remove(int entry) override;

  private:
    const cuda::Context* own() const { return gpu_.device.context(); }  // null: the communicator has no device
    Result<CUcontext> any_context();
    Result<cuda::PointerFacts> describe(const DeviceArgument& argument);
    Result<cuda::PointerFacts> query(const void* address);
    Status check(const DeviceArgument& argument, const cuda::PointerFacts& at) const;

    JoinedGpu& gpu_;
    HostAddresses host_addresses_;
    cuda::KnownVmmMemory known_vmm_;
    const bool trusts_ = options().gpu_trust_pointers != 0;
    cuda::Context other_context_;  // for queries of a rank without a device
};

}  // namespace weft::internal
