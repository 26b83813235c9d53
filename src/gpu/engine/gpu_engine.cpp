#include "src/gpu/engine/gpu_engine.hpp"

#include <unistd.h>

#include <optional>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/gpu/engine/device_buffers.hpp"
#include "src/gpu/engine/device_collectives.hpp"
#include "src/gpu/engine/device_watch.hpp"
#include "src/gpu/engine/engine_copies.hpp"
#include "src/gpu/engine/gpu_join.hpp"
#include "src/gpu/engine/messages/message_calls.hpp"
#include "src/gpu/engine/staged_copies.hpp"
#include "src/gpu/engine/window_calls.hpp"

namespace weft::internal {

namespace {

constexpr int64_t copies_patience_us = 2'000'000;  // after an abort: the rest of a call's copies

class CudaEngine final : public GpuEngine {
  public:
    explicit CudaEngine(GpuDevice device) : gpu_(std::move(device)) {}
    CudaEngine(const CudaEngine&) = delete;
    ~CudaEngine() override;

    DeviceFacts facts() const override { return gpu_.device.facts; }
    void meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
              std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines) override {
        join_.meet(std::move(group), identity, rank, timeout_ms, std::move(catalog), std::move(machines));
    }
    Result<bool> advance() override { return join_.advance(); }
    Status begin(int64_t timeout_ms) override {
        WEFT_TRY(join_.begin(timeout_ms));
        return gpu_.domain && gpu_.group->ranks() > 1 ? watch_.start() : ok();
    }
    bool copies() const override { return gpu_.copies; }
    bool idle() const override { return !gpu_.domain || !gpu_.domain->launches().working(); }
    void finish() const override {
        if (gpu_.domain) gpu_.domain->launches().finish();
    }
    void look(bool may_wait) const override {
        if (gpu_.domain && gpu_.domain->failure() != cuda::KernelFailure::none) [[unlikely]]
            watch_.look(false, may_wait);
    }
    std::string explain(const Operation& operation, uint8_t preference) const override;
    uint64_t device_bytes() const override { return gpu_.domain ? gpu_.domain->memory().device_bytes() : 0; }

    GpuCollectives& collectives() override { return collectives_; }
    GpuMessages& messages() override { return messages_; }
    GpuWindows& windows() override { return windows_; }
    GpuStaging& staging() override { return staging_; }
    GpuBuffers& buffers() override { return buffers_; }
    GpuCopies& engine_copies() override { return engine_copies_; }

  private:
    void end_copies() const;

    // Set while the engine ends, until its parts are destroyed: another thread may capture meanwhile.
    std::optional<cuda::RelaxedCapture> ending_;
    JoinedGpu gpu_;
    GpuJoin join_{gpu_};
    DeviceLauncher launcher_{gpu_};
    MessageCalls messages_{gpu_, launcher_};
    DeviceCollectives collectives_{gpu_, launcher_, messages_};
    WindowCalls windows_{gpu_, launcher_};
    StagedCopies staging_{gpu_, launcher_};
    DeviceBuffers buffers_{gpu_};
    EngineCopies engine_copies_{gpu_, launcher_};
    mutable DeviceWatch watch_{gpu_};
};

CudaEngine::~CudaEngine() {
    ending_.emplace(*gpu_.device.driver);
    // Peers may die while we wait for our kernels, so peers are watched until the kernels have ended.
    finish();
    if (gpu_.network) (void)gpu_.network->drain(gpu_.timeout_ns > 0 ? now_us() + int64_t(gpu_.timeout_ns / 1000) : 0);
    end_copies();
    watch_.stop();
    gpu_.network.reset();
    gpu_.buffer_registry.reset();  // before we report that we have unmapped the others' memory
    if (gpu_.domain)
        cuda::Domain::retire(std::move(gpu_.domain));
    else if (gpu_.group)
        gpu_.group->row(gpu_.rank).gpu.left.store(1, std::memory_order_release);
    if (gpu_.group && !gpu_.group->one_host()) gpu_.group->doorbell().ring();  // the leader may be waiting for it
}

// After an abort: replayed graphs, which finish() does not see, may wait without a kernel. Without the watch nobody would
// end their waits.
void CudaEngine::end_copies() const {
    cuda::CopySignals* const copies = gpu_.domain ? gpu_.domain->copy_signals() : nullptr;
    if (!copies || !gpu_.group->aborted()) return;
    copies->release();
    for (const int64_t until = now_us() + copies_patience_us; !copies->idle() && now_us() < until;) usleep(100);
    if (!copies->idle())
        WEFT_LOG_RANK(gpu_.rank, warn, coll, "leaves although a stream of it has not ended a call without kernels");
}

std::string CudaEngine::explain(const Operation& operation, uint8_t preference) const {
    if (!gpu_.unsupported_reason().empty())
        return fmt::format("\nin device memory: not served, for {}", gpu_.unsupported_reason());
    if (gpu_.copies)
        return fmt::format("\nin device memory: the same, on copies in the host's memory, because {}",
                           gpu_.copies_reason);
    const auto plan = plan_on_device(operation, collectives_.layout_for(preference));
    if (!plan) return fmt::format("\nin device memory: {}", plan.status().sentence());
    return fmt::format("\nin device memory: {}{}{}, by {} that Weft has not measured on a GPU", plan->text(),
                       gpu_.domain->fallback_text(),
                       plan->body == cuda::Body::multicast
                           ? gpu_.domain->switched_windows()
                                 ? ", in place where buffers have the same place in windows, registered or captured "
                                   "buffers of weftMemAlloc memory on all ranks, else staged"
                                 : ", staged"
                       : !plan->staged() ? ""
                       : gpu_.exports_buffers && !operation.scales()
                           ? ", in place where all buffers are of cudaMalloc or weftMemAlloc and, if other "
                             "processes have ranks, registered, else staged"
                           : ", staged",
                       plan->steps >= 0 ? "predicted time, with costs" : "size, with thresholds");
}

}  // namespace

const char* GpuEngine::why_none() { return "none was current in the thread that called weftCommInitRank"; }

int GpuEngine::devices() {
    auto driver = cuda::Driver::get();
    if (!driver) return 0;
    auto count = cuda::device_count(**driver);
    return count ? *count : 0;
}

Result<std::unique_ptr<GpuEngine>> GpuEngine::find(int which) {
    auto device = GpuDevice::find(which);
    if (!device) return device.take_status();
    if (!*device) return std::unique_ptr<GpuEngine>();
    return std::unique_ptr<GpuEngine>(std::make_unique<CudaEngine>(std::move(**device)));
}

}  // namespace weft::internal
