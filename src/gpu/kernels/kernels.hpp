// kernels.hpp: the kernels by number and name, and what a launch of each may look like.
#pragma once
#include <string_view>

#include "src/base/datatype.hpp"
#include "src/base/operation.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

enum class Body : uint8_t {
#define WEFT_KERNEL(name, needs, help) name,
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
};
inline constexpr int body_count = 0
#define WEFT_KERNEL(name, needs, help) +1
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
    ;

inline constexpr int threads_max = 512;  // of a block; a multiple of 32 that is no less than the ranks

constexpr uint32_t needs(Body body) {
    constexpr uint32_t bits[] = {
#define WEFT_KERNEL(name, needs, help) needs,
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
    };
    return bits[int(body)];
}
// Of those that every rank needs: messages, one-sided calls, steps where nothing else serves.
inline constexpr uint32_t needs_of_all = host_words;
// "a switch that adds up and hands out": the first of them; empty: there are none.
std::string_view name_of_lacking(uint32_t capabilities);
constexpr int blocks_of(Body body) {
    return body == Body::packet_one_shot || body == Body::packet_two_shot ? packet_blocks : blocks_max;
}
const char* name_of(Body body);

// As KernelArguments want it: sums and averages have code of their own.
constexpr bool adds(weftRedOp_t op) { return op == weftSum || op == weftAvg || op >= weftNumOps; }
// What a kernel of an operation is told of it: who gives what to whom, and what becomes of it; all but buffers, tiles
// and scalars. `in_one_place`: as averaging() in base/arithmetic.hpp has it.
void bind_operation(KernelArguments& arguments, const Operation& operation, int ranks, bool in_one_place);
// What the kernel takes for the elements. Bytes that only move go in the largest words that the message is made of, so
// that nothing is widened.
weftDataType_t element_of(const Operation& operation);

// "weft_steps_float_sum": the entry point in the device code. `sums`: see adds().
const char* entry_point(Body body, weftDataType_t type, bool sums);

}  // namespace weft::internal::cuda
