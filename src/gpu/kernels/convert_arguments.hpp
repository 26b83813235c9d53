// convert_arguments.hpp: the arguments of the kernel that converts floats. Plain data with the same layout in the host's
// compiler and the device's.
#pragma once
#include <cstdint>

#include "weft/types.h"

namespace weft::internal::cuda {

// Between float32 or float64 and float16 or bfloat16. The buffers are disjoint.
struct ConvertArguments {
    const void* from;
    void* to;
    uint64_t count;  // elements
    weftDataType_t from_type, to_type;
};

inline constexpr int convert_threads = 256;
inline constexpr int convert_blocks_max = 1024;

inline constexpr const char* convert_entry_point = "weft_convert";

}  // namespace weft::internal::cuda
