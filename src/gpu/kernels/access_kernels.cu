// access_kernels.cu: the entry point of one-sided calls. One serves all data types, because it only moves bytes.
#include "src/gpu/kernels/access.hpp"
#include "src/gpu/kernels/kernels.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::threads_max, 1)
    weft_access(const __grid_constant__ weft::internal::cuda::AccessArguments arguments) {
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::access(team, arguments);
}
