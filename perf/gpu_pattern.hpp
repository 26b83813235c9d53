// gpu_pattern.hpp: periods (pattern.hpp) in a GPU's memory, written and compared there by kernels of the benchmarks' own,
// so that of long messages only a count travels.
#pragma once
#include "pattern.hpp"
#include "src/drivers/cuda/kernel.hpp"
#include "src/drivers/cuda/memory.hpp"

namespace perf {

// Thread-bound to the thread of the GPU's rank, in which the context is current; must not outlive it.
class GpuPattern {
  public:
    // Fails with the reason where the programs have no device code, or the driver does not take it.
    static weft::internal::Result<GpuPattern> load(const weft::internal::cuda::Context& context);

    // As fill() and count_wrong() of pattern.hpp; done when they return, after all work of the stream. Buffer and bytes are
    // multiples of an element's size. `period`: at most period_bytes_max.
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
