// codec_kernels.cu: the entry points of the codecs of blocks of numbers.
#include "src/gpu/kernels/training/codec.hpp"

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::codec_threads)
    weft_encode_blocks(const __grid_constant__ weft::internal::cuda::CodecArguments arguments) {
    __shared__ weft::internal::cuda::CodecBlock block;
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::CodecKernel(team, arguments).encode(block);
}

extern "C" __global__ void __launch_bounds__(weft::internal::cuda::codec_threads)
    weft_decode_blocks(const __grid_constant__ weft::internal::cuda::CodecArguments arguments) {
    const weft::internal::cuda::Team team{int(threadIdx.x), int(blockDim.x), int(blockIdx.x), int(gridDim.x)};
    weft::internal::cuda::CodecKernel(team, arguments).decode();
}
