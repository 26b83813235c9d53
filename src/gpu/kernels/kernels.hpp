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
// The text of the first lacking capability, as in "a switch that adds up and hands out"; empty: none is lacking.
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
// Whether a body exists for a type. The switch adds up these types alone, and moves all types as whole words.
constexpr bool multicast_adds(weftDataType_t type) {
    return type == weftFloat32 || type == weftFloat16 || type == weftBfloat16;
}
constexpr weftDataType_t multicast_word = weftInt64;
inline constexpr size_t multicast_access = 16;  // bytes of an access by the switch, aligned
constexpr bool has_entry_point(Body body, weftDataType_t type, bool sums) {
    if (kernel_type(type) != type) return false;
    if (body == Body::local_reduce) return sums;
    return body != Body::multicast || (sums && (multicast_adds(type) || type == multicast_word));
}

// As KernelArguments wants it: sums and averages have their own code.
constexpr bool adds(weftRedOp_t op) { return op == weftSum || op == weftAvg || op >= weftNumOps; }
// Sets a kernel's arguments from the operation: sources, destinations, reduction. Buffers, tiles and scalars are set
// elsewhere. `in_one_place`: see averaging() in base/arithmetic.hpp.
void bind_operation(KernelArguments& arguments, const Operation& operation, int ranks, bool in_one_place);
// Whether the multicast kernel can execute the operation: sums of some types and copies to all, with data.
bool multicast_serves(const Operation& operation);
// The kernel's element type, of kernel_type(). If bytes only move, it is the largest word that divides the message, so
// that nothing is widened.
weftDataType_t element_of(const Operation& operation, Body body);

// The entry point in the device code, as in "weft_steps_float_sum". `sums`: see adds().
const char* entry_point(Body body, weftDataType_t type, bool sums);

}  // namespace weft::internal::cuda
