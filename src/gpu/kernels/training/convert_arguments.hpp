// convert_arguments.hpp: the arguments of the kernels that convert and scale floats. Plain data with the same layout in
// the host's compiler and the device's.
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

// Elements times `factor` divided by `divisor`, rounded after each of them, in place: one of the two is 1. They are
// rounded to the type, or float32 for 16 bits. float16, bfloat16, float32 or float64.
struct ScaleArguments {
    void* elements;
    uint64_t count;  // elements
    double factor, divisor;
    weftDataType_t type;
};

inline constexpr int convert_threads = 256;
inline constexpr int convert_blocks_max = 1024;

inline constexpr const char* convert_entry_point = "weft_convert";
inline constexpr const char* scale_entry_point = "weft_scale";

}  // namespace weft::internal::cuda
