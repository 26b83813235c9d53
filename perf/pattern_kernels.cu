// pattern_kernels.cu: the entry points of the benchmarks' own kernels.
#include "perf/pattern_kernels.hpp"

namespace {

__device__ __forceinline__ perf::Worker worker() { return {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x}; }

}  // namespace

extern "C" __global__ void __launch_bounds__(perf::pattern_threads) perf_fill(perf::PatternArguments arguments) {
    perf::fill_pattern(worker(), arguments);
}
extern "C" __global__ void __launch_bounds__(perf::pattern_threads) perf_count_wrong(perf::PatternArguments arguments) {
    perf::count_wrong_elements(worker(), arguments);
}
