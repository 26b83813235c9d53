// convert_kernels.cu: the entry point of conversions. One serves all pairs of types, because memory is its limit.
#include "src/gpu/kernels/convert.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::convert_threads)
    weft_convert(const __grid_constant__ weft::internal::cuda::ConvertArguments arguments) {
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::convert(team, arguments);
}
