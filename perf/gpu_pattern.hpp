// gpu_pattern.hpp: writes and compares periods (pattern.hpp) in a GPU's memory by the benchmarks' own kernels.
// Thus only a count is copied to the host, even for long messages.
#pragma once
#include "pattern.hpp"
#include "src/drivers/cuda/kernel.hpp"
#include "src/drivers/cuda/memory.hpp"

namespace perf {

// Thread-bound to the thread of the GPU's rank, in which the context is current; must not outlive the context.
class GpuPattern {
  public:
    // Fails with the reason if the programs have no device code or the driver rejects it.
    static weft::internal::Result<GpuPattern> load(const weft::internal::cuda::Context& context);

    // As fill() and count_wrong() of pattern.hpp. They return when done, after all work of the stream.
    // The buffer and its length are multiples of an element's size. `period`: at most period_bytes_max.
    weft::internal::Status fill(CUstream stream, void* buffer, size_t bytes, const Period& period);
    weft::internal::Result<size_t> count_wrong(CUstream stream, const void* buffer, size_t bytes, const Period& period,
                                               size_t element_bytes);
    static constexpr size_t period_bytes_max = Pattern::period_elements * sizeof(uint64_t);

  private:
    weft::internal::Status run(const weft::internal::cuda::Kernel& kernel, CUstream stream, void* buffer, size_t bytes,
                               const Period& period, size_t element_bytes);

    const weft::internal::cuda::Driver* driver_ = nullptr;
    weft::internal::cuda::Kernel fill_, count_wrong_;
    weft::internal::cuda::DeviceMemory memory_;  // the count, then the period
};

}  // namespace perf
