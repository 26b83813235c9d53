#include "src/gpu/engine/device_launcher.hpp"

#include <algorithm>

namespace weft::internal {

using cuda::ContextScope;

Status DeviceLauncher::take_stream(void* stream) {
    const auto on = static_cast<CUstream>(stream);
    const cuda::Context& context = *gpu_.device.context();
    const int device = gpu_.device.ordinal();
    ContextScope scope(context);
    WEFT_TRY(scope.take_status());
    auto facts = known_streams_.describe(*gpu_.device.driver, on);
    if (!facts) return facts.take_status();
    if (facts->context != context.handle())
        return fail(error::memory_device,
                    "the stream belongs to {}device {}, and the communicator's rank {} is on device {}: create the "
                    "stream with that device current",
                    facts->device == device ? "another context of " : "", facts->device, gpu_.rank, device);
    if (gpu_.sharing && (on == nullptr || on == CU_STREAM_LEGACY))
        return fail(error::stream_shared,
                    "the legacy stream cannot be used if several ranks of a process share device {}: the ranks would "
                    "wait for each other; give each rank a stream of its own, made with cudaStreamNonBlocking",
                    device);
    if (gpu_.copies && facts->capturing)
        return fail(error::stream_capture,
                    "the stream is captured, and the communicator copies device memory through host memory ({}): "
                    "such calls cannot become part of a graph",
                    gpu_.copies_reason);
    facts_ = *facts;
    graph_registrations_.collect();
    const bool registers =
        facts_.capturing && gpu_.exports_buffers && gpu_.group->header().agreed.gpu.graph_register != 0;
    registers_graphs_ = registers && !one_process(*gpu_.group);
    registers_switched_ = registers && gpu_.domain->switched_buffers();
    return ok();
}

Status DeviceLauncher::order(void* stream) {
    ContextScope scope(gpu_.kernels().context());
    WEFT_TRY(scope.take_status());
    const auto turn = gpu_.domain->launches().take_turn();
    return gpu_.domain->launches().order(static_cast<CUstream>(stream), facts_);
}

uint64_t DeviceLauncher::timeout_of(const CallSettings& settings) const {
    return settings.timeout_ms < 0 ? gpu_.timeout_ns : nanoseconds_of(settings.timeout_ms);
}

Result<std::optional<int>> DeviceLauncher::priority(int asked) {
    if (asked == WEFT_CONFIG_UNDEF_INT) [[likely]]
        return std::optional<int>();
    if (!priorities_) {
        const cuda::Driver& driver = *gpu_.device.driver;
        int last = 0, first = 0;
        WEFT_TRY(driver.check(driver.CtxGetStreamPriorityRange(&last, &first), "query the range of priorities"));
        priorities_ = {first, last};
    }
    return std::optional<int>(std::clamp(asked, priorities_->first, priorities_->second));
}

Status DeviceLauncher::enqueue(const cuda::Kernel& kernel, const cuda::LaunchShape& shape, void* stream,
                               void* arguments) const {
    void* parameters[] = {arguments};
    const CUresult result = kernel.enqueue(shape, static_cast<CUstream>(stream), parameters);
    if (result == CUDA_SUCCESS) [[likely]]
        return ok();
    return gpu_.device.driver->failure(result, fmt::format("launch the kernel {} with {} blocks of {} threads",
                                                           kernel.name(), shape.blocks, shape.threads));
}

}  // namespace weft::internal
