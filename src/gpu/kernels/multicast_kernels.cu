// multicast_kernels.cu: entry points of the kernels that use the switch. Code for older targets has none of them: only
// sm_90 and later have the instructions.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include "src/gpu/kernels/multicast.hpp"

#define WEFT_MULTICAST(type, name)                                                                                 \
    extern "C" __global__ void __launch_bounds__(weft::internal::cuda::threads_max, 1)                             \
        weft_multicast_##name##_sum(const __grid_constant__ weft::internal::cuda::KernelArguments arguments) {     \
        const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)}; \
        weft::internal::cuda::multicast<type, true>(team, arguments);                                              \
    }
WEFT_MULTICAST(weftFloat16, half)
WEFT_MULTICAST(weftFloat32, float)
WEFT_MULTICAST(weftBfloat16, bfloat16)
WEFT_MULTICAST(weftInt64, int64)
#endif
