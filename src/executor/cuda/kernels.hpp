// kernels.hpp: the kernels by number and name, and what a launch of each may look like.
#pragma once
#include "src/base/datatype.hpp"
#include "src/executor/cuda/kernel_arguments.hpp"

namespace weft::cuda {

enum class Body : uint8_t {
#define WEFT_KERNEL(name, needs, help) name,
#include "src/executor/cuda/kernel.def"
#undef WEFT_KERNEL
};
inline constexpr int body_count = 0
#define WEFT_KERNEL(name, needs, help) +1
#include "src/executor/cuda/kernel.def"
#undef WEFT_KERNEL
    ;

inline constexpr int threads_max = 512;  // of a block; a multiple of 32 that is no less than the ranks

constexpr uint32_t needs(Body body) {
    constexpr uint32_t bits[] = {
#define WEFT_KERNEL(name, needs, help) needs,
#include "src/executor/cuda/kernel.def"
#undef WEFT_KERNEL
    };
    return bits[int(body)];
}
constexpr int blocks_of(Body body) {
    return body == Body::packet_one_shot || body == Body::packet_two_shot ? packet_blocks : blocks_max;
}
const char* name_of(Body body);

// As KernelArguments want it: sums and averages have code of their own.
constexpr bool adds(weftRedOp_t op) { return op == weftSum || op == weftAvg || op >= weftNumOps; }
// "weft_steps_float_sum": the entry point in the device code. `sums`: see adds().
const char* entry_point(Body body, weftDataType_t type, bool sums);

}  // namespace weft::cuda
