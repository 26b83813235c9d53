// multicast_kernels.cu: entry points of the kernels that use the switch. Code for older targets has none of them: only
// sm_90 and later have the instructions, and those for fp8 belong to the family of sm_100.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include "src/gpu/kernels/multicast/multicast.hpp"

#define WEFT_MULTICAST(type, name, suffix, adds)                                                                   \
    extern "C" __global__ void __launch_bounds__(weft::internal::cuda::threads_max, 1)                             \
        weft_multicast_##name##_##suffix(const __grid_constant__ weft::internal::cuda::KernelArguments arguments) { \
        const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)}; \
        weft::internal::cuda::multicast<type, adds>(team, arguments);                                              \
    }
WEFT_MULTICAST(weftInt8, int8, sum, true)  // moves of any type
WEFT_MULTICAST(weftFloat16, half, sum, true)
WEFT_MULTICAST(weftFloat32, float, sum, true)
WEFT_MULTICAST(weftFloat64, double, sum, true)
WEFT_MULTICAST(weftBfloat16, bfloat16, sum, true)
WEFT_MULTICAST(weftInt32, int32, sum, true)
WEFT_MULTICAST(weftInt64, int64, sum, true)
WEFT_MULTICAST(weftFloat16, half, other, false)
WEFT_MULTICAST(weftBfloat16, bfloat16, other, false)
WEFT_MULTICAST(weftInt32, int32, other, false)
WEFT_MULTICAST(weftInt64, int64, other, false)
#if !defined(__CUDA_ARCH__) || (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1000)
WEFT_MULTICAST(weftFloat8e4m3, fp8_e4m3, sum, true)
WEFT_MULTICAST(weftFloat8e5m2, fp8_e5m2, sum, true)
WEFT_MULTICAST(weftFloat8e4m3, fp8_e4m3, other, false)
WEFT_MULTICAST(weftFloat8e5m2, fp8_e5m2, other, false)
#endif
#endif
