// message_kernels.cu: the entry point of messages. One serves all data types, because it only moves bytes.
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/messages.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::threads_max, 1)
    weft_messages(const __grid_constant__ weft::internal::cuda::MessageArguments arguments) {
    __shared__ weft::internal::cuda::MessageBlock block;
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::messages(team, arguments, block);
}
