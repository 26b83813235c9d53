// codec_arguments.hpp: the arguments of the kernels that turn float32 numbers into whole numbers and back. Plain data with
// the same layout in the host's compiler and the device's.
#pragma once
#include <cstdint>

namespace weft::internal::cuda {

// The form of a message is that of Int8Codec and Int4Codec (src/train/hooks/codecs.hpp). It needs no alignment. The
// buffers are disjoint.
struct CodecArguments {
    float* numbers;
    unsigned char* message;
    uint64_t count;  // numbers
    uint64_t block;  // numbers with one scale; even with 4 bits, so that no byte belongs to two blocks
    int bits;        // 4 or 8
};

inline constexpr int codec_threads = 128;
inline constexpr int codec_blocks_max = 2048;

inline constexpr const char* encode_entry_point = "weft_encode_blocks";
inline constexpr const char* decode_entry_point = "weft_decode_blocks";

}  // namespace weft::internal::cuda
