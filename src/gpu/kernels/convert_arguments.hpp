// convert_arguments.hpp: the arguments of the kernels that convert and divide floats. Plain data with the same layout in
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

// float16, bfloat16, float32 or float64, in place. The divisor is rounded to the type, or float32 for 16 bits.
struct DivideArguments {
    void* elements;
    uint64_t count;  // elements
    double divisor;
    weftDataType_t type;
};

inline constexpr int convert_threads = 256;
inline constexpr int convert_blocks_max = 1024;

inline constexpr const char* convert_entry_point = "weft_convert";
inline constexpr const char* divide_entry_point = "weft_divide";

}  // namespace weft::internal::cuda
