// optimizer_kernels.cu: the entry point of a training step on many parts. One serves all data types and all work,
// because memory is its limit.
#include "src/gpu/kernels/training/optimizer.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::optimizer_threads)
    weft_optimizer(const __grid_constant__ weft::internal::cuda::OptimizerArguments arguments) {
    __shared__ weft::internal::cuda::OptimizerBlock block;
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::optimizer(team, arguments, block);
}
