// access_kernels.cu: the entry point of one-sided calls; one, for bytes are bytes.
#include "src/gpu/kernels/access.hpp"
#include "src/gpu/kernels/kernels.hpp"

extern "C" __global__ void __launch_bounds__(weft::cuda::threads_max, 1)
    weft_access(const __grid_constant__ weft::cuda::AccessArguments arguments) {
    const weft::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::cuda::access(team, arguments);
}
