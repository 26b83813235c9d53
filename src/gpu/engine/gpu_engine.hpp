// gpu_engine.hpp: the GPU of a rank: found when the communicator is made, joined with the GPUs of the other ranks, then
// used for calls on device memory. It hides CUDA from the communicator. A build without CUDA's headers has
// gpu_engine_without_cuda.cpp. Thread-bound to the rank unless stated otherwise.
#pragma once
#include <memory>
#include <string>

#include "src/base/result.hpp"
#include "src/gpu/engine/gpu_calls.hpp"
#include "src/planning/machines.hpp"
#include "src/segment/segment.hpp"
#include "src/selector/catalog.hpp"

namespace weft::internal {

namespace net {
struct Identity;
}

class GpuEngine {
  public:
    static constexpr int current = current_gpu, no_device = no_gpu;
    // Null: the process has not initialised CUDA, and Weft does not do it either. An engine may have no usable device:
    // a call that needs it reports the reason. Fails for a number without a device.
    static Result<std::unique_ptr<GpuEngine>> find(int which);
    // Why find() usually finds none: "this communicator has no device, for ...".
    static const char* why_none();
    // The devices that this process sees, 0 without a driver. Makes no context.
    static int devices();
    virtual ~GpuEngine() = default;

    // For the other ranks, before they meet.
    virtual DeviceFacts facts() const = 0;
    // The ranks have met, and advance() makes the shared resources. identity: of the communicator; null if its ranks
    // are on one host. timeout_ms: for joining; 0: none.
    virtual void meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
                      std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines) = 0;
    // One step of joining, without blocking. True when the support of device memory is decided. The caller must report
    // a failure to the other ranks.
    virtual Result<bool> advance() = 0;
    // Called before the first call. timeout_ms: for operations.
    virtual Status begin(int64_t timeout_ms) = 0;

    // Whether calls on device memory are staged through host memory, because kernels cannot run for all ranks. Equal on
    // all ranks once they have met.
    virtual bool copies() const = 0;
    // Whether no directly launched kernel runs.
    virtual bool idle() const = 0;
    // Waits for the kernels of this rank's calls, at most two seconds after an abort.
    virtual void finish() const = 0;
    // Reports the failure of a kernel to all ranks. One load if there is none. Thread-safe.
    virtual void look(bool may_wait) const = 0;
    // Lines for users.
    virtual std::string explain(const Operation& operation, uint8_t preference) const = 0;
    virtual uint64_t device_bytes() const = 0;

    virtual GpuCollectives& collectives() = 0;
    virtual GpuMessages& messages() = 0;
    virtual GpuWindows& windows() = 0;
    virtual GpuStaging& staging() = 0;
    virtual GpuBuffers& buffers() = 0;
    virtual GpuCopies& engine_copies() = 0;
};

}  // namespace weft::internal
