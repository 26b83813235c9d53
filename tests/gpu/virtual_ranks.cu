// virtual_ranks.cu: the kernels' bodies as several ranks in one grid, for a machine with one GPU, and for sanitizers and
// profilers, which run kernels one after the other. Blocks i * blocks to (i + 1) * blocks - 1 are rank i's.
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/packets/packet_two_shot.hpp"
#include "src/gpu/kernels/packets/packets.hpp"
#include "src/gpu/kernels/peer_one_shot.hpp"
#include "src/gpu/kernels/peer_two_shot.hpp"
#include "src/gpu/kernels/steps.hpp"

#define WEFT_VIRTUAL(body, type, name)                                                                            \
    extern "C" __global__ void __launch_bounds__(weft::internal::cuda::threads_max)                               \
        virtual_##body##_##name##_sum(const weft::internal::cuda::KernelArguments* ranks, int blocks) {           \
        const int rank = int(blockIdx.x) / blocks;                                                                \
        const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x) - rank * blocks, \
                                              blocks};                                                            \
        weft::internal::cuda::body<type, true>(team, ranks[rank]);                                                \
    }
// Every body, for the types of virtual_types (device_ranks.hpp), except the one that needs a switch.
#define WEFT_KERNEL_OF_SOME_TYPES(body, needs, help)
#define WEFT_KERNEL(body, needs, help)         \
    WEFT_VIRTUAL(body, weftFloat32, float)     \
    WEFT_VIRTUAL(body, weftBfloat16, bfloat16) \
    WEFT_VIRTUAL(body, weftInt8, int8)         \
    WEFT_VIRTUAL(body, weftFloat8e4m3, fp8_e4m3)
#include "src/gpu/kernels/kernel.def"
