// hook_kernels.cu: the entry point of compressing hooks.
#include "src/gpu/kernels/training/hooks.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::hook_threads)
    weft_hook(const __grid_constant__ weft::internal::cuda::HookArguments arguments) {
    __shared__ weft::internal::cuda::HookBlock block;
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::hook(team, arguments, block);
}
