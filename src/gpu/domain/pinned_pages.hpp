// pinned_pages.hpp: host memory that kernels of all devices of this process can access. These are the segment's abort
// flag, and the memory that replaces device memory of ranks that not all others reach.
#pragma once
#include <atomic>
#include <memory>

#include "src/base/shared_memory.hpp"
#include "src/drivers/cuda/memory.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/peer_access/peer_memory.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal::cuda {

// Pages of the host, pinned once for all devices of the process. The pages must outlive this owner.
class PinnedPages {
  public:
    Status pin(const Context& context, void* data, size_t bytes);
    // The address in kernels of the current context.
    Result<CUdeviceptr> address() const;

  private:
    Context context_;
    PinnedMemory memory_;
};

// The communicator's abort flag, mapped for the kernels of all devices of this process. One per process, which maps the
// segment once.
class SharedAbortFlag {
  public:
    static Result<std::shared_ptr<SharedAbortFlag>> of(const std::shared_ptr<Segment>& group, const Context& context);
    Result<const uint32_t*> abort() const {
        static_assert(sizeof(AbortRecord::state) == sizeof(uint32_t));
        auto address = pinned_.address();
        if (!address) return address.take_status();
        return reinterpret_cast<const uint32_t*>(*address + offsetof(SegmentHeader, abort) +
                                                 offsetof(AbortRecord, state));
    }
    // The address in kernels of something in the rows of the segment, which are mapped too if all ranks are on one host.
    Result<CUdeviceptr> address_of(const void* in_row) const;

    // The last launch of each rank of this process: its stream, and its number among the rank's launches.
    struct LastLaunch {
        std::atomic<uint64_t> stream{0};  // its id
        std::atomic<uint64_t> launch{0};
    } claims[ranks_max];

  private:
    std::shared_ptr<Segment> segment_;
    PinnedPages pinned_;
};

// Host memory that replaces the device memory of ranks of a host. It belongs to the host's first rank. One per process.
class HostFallbackMemory {
  public:
    static Result<std::shared_ptr<HostFallbackMemory>> of(const PeerMemory& where, const Context& context);
    Result<CUdeviceptr> address() const { return pinned_.address(); }

  private:
    std::shared_ptr<SharedMemory> memory_;
    PinnedPages pinned_;
};

}  // namespace weft::internal::cuda
