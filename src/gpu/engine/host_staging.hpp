// host_staging.hpp: host copies of a call's device buffers, for devices on which no kernels of Weft run: the call is
// executed on host memory. The calling thread waits for all copies, so work that is enqueued later finds the result.
// Thread-bound to the rank.
#pragma once
#include <span>
#include <vector>

#include "src/drivers/cuda/memory.hpp"
#include "src/gpu/engine/device_calls.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

class HostStaging {
  public:
    // The context must outlive this object.
    explicit HostStaging(const cuda::Context& context) : context_(&context) {}
    HostStaging(const HostStaging&) = delete;

    // Copies the data that a call reads, after the stream's work so far. Read and written buffers may overlap.
    Status begin(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes, CUstream stream);
    // The host copy of a device address; other addresses are returned unchanged.
    void* at(const void* on_device) const;
    // Copies the results back.
    Status end();
    uint64_t bytes() const { return memory_.bytes(); }

  private:
    struct Region {
        uintptr_t begin, end;
        size_t offset;  // in the host memory
    };
    Status make_room(size_t bytes);
    void arrange(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes);

    const cuda::Context* context_;
    ArenaMemory memory_;         // peers of the host can access it
    cuda::PinnedMemory pinned_;  // empty if the system refuses to pin: copies are slower then
    std::vector<Region> regions_;
    std::vector<DeviceSpan> writes_;
    CUstream stream_ = nullptr;
};

}  // namespace weft::internal
