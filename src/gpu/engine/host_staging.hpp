// host_staging.hpp: what a call on device memory reads and writes, as copies in the host's memory, where no kernels of
// Weft's run and the call is carried out by the host. Copies are waited for: the thread that calls is busy meanwhile,
// and whatever is enqueued later finds the result. Thread-bound to the rank.
#pragma once
#include <span>
#include <vector>

#include "src/drivers/cuda/memory.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

class HostStaging {
  public:
    // The context outlives this.
    explicit HostStaging(const cuda::Context& context) : context_(&context) {}
    HostStaging(const HostStaging&) = delete;

    // Copies what a call reads, behind the stream's work so far. What it reads and writes may overlap.
    Status begin(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes, CUstream stream);
    // Where something of that lies on the host; what is none of it stays what it is.
    void* at(const void* on_device) const;
    // Copies what the call has written.
    Status end();
    uint64_t bytes() const { return memory_.bytes(); }

  private:
    struct Region {
        uintptr_t begin, end;
        size_t offset;  // on the host
    };
    Status make_room(size_t bytes);
    void arrange(std::span<const DeviceSpan> reads, std::span<const DeviceSpan> writes);

    const cuda::Context* context_;
    ArenaMemory memory_;         // peers of the host reach it
    cuda::PinnedMemory pinned_;  // none where the machine refuses: copies are slower then
    std::vector<Region> regions_;
    std::vector<DeviceSpan> writes_;
    CUstream stream_ = nullptr;
};

}  // namespace weft::internal
