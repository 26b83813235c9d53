// kernels.hpp: the kernels' numbers, names and launch limits.
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

inline constexpr int threads_max = 512;  // of a block; a multiple of 32 and at least the number of ranks

constexpr uint32_t needs(Body body) {
    constexpr uint32_t bits[] = {
#define WEFT_KERNEL(name, needs, help) needs,
#include "src/gpu/kernels/kernel.def"
#undef WEFT_KERNEL
    };
    return bits[int(body)];
}
// Needs of the kernels that every rank uses: messages, one-sided calls, steps as the fallback.
inline constexpr uint32_t needs_of_all = host_words;
// The text of the first lacking capability, as in "a switch that reduces and hands out"; empty: none is lacking.
std::string_view name_of_lacking(uint32_t capabilities);
constexpr int blocks_of(Body body) {
    return body == Body::packet_one_shot || body == Body::packet_two_shot ? packet_blocks : blocks_max;
}
const char* name_of(Body body);
// The type whose kernels serve a type. Signed and unsigned integers share them (KernelArguments::unsigned_elements).
constexpr weftDataType_t kernel_type(weftDataType_t type) {
    switch (type) {
        case weftUint8: return weftInt8;
        case weftUint32: return weftInt32;
        case weftUint64: return weftInt64;
        default: return type;
    }
}
// Whether the switch has the reduction. It combines the bits of all integers as words of 8 bytes, and moves all types.
constexpr bool multicast_reduces(weftDataType_t type, weftRedOp_t op) {
    if (is_bitwise(op)) return is_integer(type);
    if (op == weftSum) return type != weftInt8 && type != weftUint8;
    return (op == weftMax || op == weftMin) && type != weftInt8 && type != weftUint8 && type != weftFloat32 &&
           type != weftFloat64;
}
constexpr bool is_float8(weftDataType_t type) { return type == weftFloat8e4m3 || type == weftFloat8e5m2; }
// Whether its results follow base/arithmetic.hpp. The sums of fp8 are rounded as fp16, and the least and the greatest of
// floats may leave out NaNs.
constexpr bool multicast_is_exact(weftDataType_t type, weftRedOp_t op) {
    return is_integer(type) || (op == weftSum && !is_float8(type));
}
constexpr weftDataType_t multicast_word = weftInt8, multicast_bits = weftInt64;  // the types of these kernels
// The capabilities that a body's kernels for a type need.
constexpr uint32_t needs(Body body, weftDataType_t type) {
    return needs(body) | (body == Body::multicast && is_float8(type) ? uint32_t(switch_fp8) : 0);
}
inline constexpr size_t multicast_access = 16;  // bytes of an access by the switch, aligned
constexpr bool has_entry_point(Body body, weftDataType_t type, bool sums) {
    if (kernel_type(type) != type) return false;
    if (body == Body::local_reduce) return sums;
    if (body != Body::multicast) return true;
    return sums ? type == multicast_word || multicast_reduces(type, weftSum) : multicast_reduces(type, weftMax);
}

// As KernelArguments wants it: sums and averages have their own code.
constexpr bool adds(weftRedOp_t op) { return op == weftSum || op == weftAvg || op >= weftNumOps; }
// Sets a kernel's arguments from the operation: sources, destinations, reduction. Buffers, tiles and scalars are set
// elsewhere. `in_one_place`: see averaging() in base/arithmetic.hpp.
void bind_operation(KernelArguments& arguments, const Operation& operation, int ranks, bool in_one_place);
// Whether the multicast kernel can execute the operation: some reductions and copies to all, with data. exactly: with the
// results of other kernels, but for the order of sums.
bool multicast_serves(const Operation& operation, uint32_t capabilities, bool exactly);
// The kernel's element type, of kernel_type(). If bytes only move, it is the largest word that divides the message, so
// that nothing is widened.
weftDataType_t element_of(const Operation& operation, Body body);

// The entry point in the device code, as in "weft_steps_float_sum". `sums`: see adds().
const char* entry_point(Body body, weftDataType_t type, bool sums);

}  // namespace weft::internal::cuda
