// convert_kernels.cu: the entry points of conversions and scales. One serves all types, because memory is its limit.
#include "src/gpu/kernels/training/convert.hpp"

namespace {

__device__ weft::internal::cuda::Team team_of_thread() {
    return {int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::convert_threads)
    weft_convert(const __grid_constant__ weft::internal::cuda::ConvertArguments arguments) {
    weft::internal::cuda::convert(team_of_thread(), arguments);
}

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::convert_threads)
    weft_scale(const __grid_constant__ weft::internal::cuda::ScaleArguments arguments) {
    weft::internal::cuda::scale(team_of_thread(), arguments);
}
