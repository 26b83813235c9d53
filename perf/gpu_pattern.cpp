// gpu_pattern.cpp: loads the kernels' device code once for each process and launches the kernels.
#include "gpu_pattern.hpp"

#include <algorithm>
#include <cassert>
#include <mutex>

#include "pattern_kernels.hpp"

#if PERF_DEVICE_CODE
// From pattern_kernels.S.
extern "C" [[gnu::visibility("hidden")]] const std::byte perf_pattern_kernels[];
#endif

namespace perf {

namespace {

using namespace weft::internal::cuda;

constexpr size_t period_place = 256;  // behind the count, with the alignment of cuMemAlloc
constexpr size_t pattern_blocks_max = 256;

weft::internal::Result<Library> pattern_library([[maybe_unused]] const Driver& driver) {
#if PERF_DEVICE_CODE
    static std::mutex mutex;
    static Library library;
    const std::lock_guard lock(mutex);
    if (!library) {
        auto loaded = Library::load(driver, perf_pattern_kernels);
        if (!loaded) return loaded.take_status();
        library = *loaded;
    }
    return library;
#else
    return weft::internal::fail(weft::internal::error::gpu_no_device_code,
                                "this build has no device code: no nvcc was found when it was made");
#endif
}

// The largest element size that divides the buffer's address and length and the period's length.
size_t common_element(const void* buffer, size_t bytes, size_t period_bytes) {
    const uintptr_t all = reinterpret_cast<uintptr_t>(buffer) | bytes | period_bytes | sizeof(uint64_t);
    return all & -all;
}

}  // namespace

weft::internal::Result<GpuPattern> GpuPattern::load(const Context& context) {
    auto library = pattern_library(context.driver());
    if (!library) return library.take_status();
    GpuPattern result;
    result.driver_ = &context.driver();
    for (const auto& [kernel, name] :
         {std::pair(&result.fill_, fill_entry_point), std::pair(&result.count_wrong_, wrong_entry_point)}) {
        auto loaded = Kernel::load(*library, context, name);
        if (!loaded) return loaded.take_status();
        *kernel = *loaded;
    }
    auto memory = DeviceMemory::allocate(context, period_place + period_bytes_max);
    if (!memory) return memory.take_status();
    result.memory_ = std::move(*memory);
    return result;
}

weft::internal::Status GpuPattern::run(const Kernel& kernel, CUstream stream, void* buffer, size_t bytes,
                                       const Period& period, size_t element_bytes) {
    assert(period.size() <= period_bytes_max && bytes % element_bytes == 0 && period.size() % element_bytes == 0);
    const CUdeviceptr there = memory_.address() + period_place;
    WEFT_TRY(copy_async(*driver_, there, reinterpret_cast<CUdeviceptr>(period.data()), period.size(), stream));
    PatternArguments pattern{.buffer = static_cast<std::byte*>(buffer),
                             .bytes = bytes,
                             .period = reinterpret_cast<const std::byte*>(there),
                             .period_bytes = period.size(),
                             .element_bytes = uint32_t(element_bytes),
                             .wrong = static_cast<uint64_t*>(memory_.data())};
    void* arguments[] = {&pattern};
    const size_t periods = (bytes + period.size() - 1) / period.size();
    return kernel.launch({.blocks = unsigned(std::min(periods, pattern_blocks_max)), .threads = pattern_threads},
                         stream, arguments);
}

weft::internal::Status GpuPattern::fill(CUstream stream, void* buffer, size_t bytes, const Period& period) {
    if (bytes == 0) return weft::internal::ok();
    WEFT_TRY(run(fill_, stream, buffer, bytes, period, common_element(buffer, bytes, period.size())));
    return driver_->check(driver_->StreamSynchronize(stream), "fill {} bytes of a buffer", bytes);
}

weft::internal::Result<size_t> GpuPattern::count_wrong(CUstream stream, const void* buffer, size_t bytes,
                                                       const Period& period, size_t element_bytes) {
    if (bytes == 0) return size_t(0);
    uint64_t wrong = 0;
    WEFT_TRY(fill_async(*driver_, memory_.address(), 0, sizeof wrong, stream));
    WEFT_TRY(run(count_wrong_, stream, const_cast<void*>(buffer), bytes, period, element_bytes));
    WEFT_TRY(copy_async(*driver_, reinterpret_cast<CUdeviceptr>(&wrong), memory_.address(), sizeof wrong, stream));
    WEFT_TRY(driver_->check(driver_->StreamSynchronize(stream), "check {} bytes of a buffer", bytes));
    return size_t(wrong);
}

}  // namespace perf
