// optimizer_kernels.cu: the entry points of a training step on many parts, of training with rare communication, and of
// batch-norm statistics. Each serves all data types and all work, because memory is its limit.
#include "src/gpu/kernels/training/batch_norm.hpp"
#include "src/gpu/kernels/training/local_elements.hpp"
#include "src/gpu/kernels/training/optimizer.hpp"

namespace {

__device__ weft::internal::cuda::Team team_of_thread() {
    return {int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
}

}  // namespace

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::optimizer_threads)
    weft_optimizer(const __grid_constant__ weft::internal::cuda::OptimizerArguments arguments) {
    __shared__ weft::internal::cuda::OptimizerBlock block;
    weft::internal::cuda::optimizer(team_of_thread(), arguments, block);
}

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::local_threads)
    weft_local_step(const __grid_constant__ weft::internal::cuda::LocalArguments arguments) {
    const weft::internal::cuda::Team team = team_of_thread();
    weft::internal::cuda::local_elements(weft::internal::cuda::NumbersOfThread(team), arguments);
}

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::batch_norm_threads)
    weft_batch_norm(const __grid_constant__ weft::internal::cuda::BatchNormArguments arguments) {
    __shared__ weft::internal::cuda::BatchNormBlock block;
    weft::internal::cuda::batch_norm(team_of_thread(), arguments, block);
}
