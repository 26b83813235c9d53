// multimem.hpp: accesses to a multicast mapping: a load combines the same bytes of all ranks, and a store writes them for
// all ranks. On the device the switch does both (PTX multimem, sm_90). On the host a loop over the copies does.
// The order of a load's copies is that of the switch on the device and that of the copies on the host.
#pragma once
#include "src/gpu/kernels/kernels.hpp"
#include "src/gpu/kernels/multicast/multicast_copies.hpp"
#include "src/gpu/kernels/packed_elements.hpp"

namespace weft::internal::cuda {

// The bytes of a load. The switch combines integers and doubles one at a time, and other floats in vectors.
template <weftDataType_t type>
constexpr int multimem_bytes = is_integer(type) || type == weftFloat64 ? int(sizeof(ElementOf<type>)) : 16;

#if defined(__CUDACC__)

#define WEFT_LOAD_REDUCED(instruction)                                             \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " %0, [%1];" \
                 : "=r"(words[0])                                                  \
                 : "l"(address)                                                    \
                 : "memory")
#define WEFT_LOAD_REDUCED_8(instruction)                                               \
    do {                                                                               \
        uint64_t both;                                                                 \
        asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " %0, [%1];" \
                     : "=l"(both)                                                      \
                     : "l"(address)                                                    \
                     : "memory");                                                      \
        words[0] = uint32_t(both);                                                     \
        words[1] = uint32_t(both >> 32);                                               \
    } while (0)
#define WEFT_LOAD_REDUCED_16(instruction)                                                        \
    asm volatile("multimem.ld_reduce.relaxed.sys.global." instruction " {%0, %1, %2, %3}, [%4];" \
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])                \
                 : "l"(address)                                                                  \
                 : "memory")

#define WEFT_LOAD_REDUCED_FLOATS(vector, precision)          \
    if constexpr (op == weftSum)                             \
        WEFT_LOAD_REDUCED_16("add" precision ".v4." vector); \
    else if constexpr (least)                                \
        WEFT_LOAD_REDUCED_16("min.v4." vector);              \
    else                                                     \
        WEFT_LOAD_REDUCED_16("max.v4." vector)

// Sums of 16-bit floats are rounded once, after the sum; those of fp8 are sums of fp16. Of floats smaller than float the
// least and the greatest may leave out NaNs, which PTX does not say.
template <weftDataType_t type, weftRedOp_t op>
WEFT_DEVICE Pack<multimem_bytes<type>> multimem_reduce(const std::byte* address) {
    Pack<multimem_bytes<type>> pack;
    uint32_t(&words)[multimem_bytes<type> / 4] = pack.words;
    constexpr bool least = op == weftMin;
    if constexpr (type == weftFloat32) {
        WEFT_LOAD_REDUCED_16("add.v4.f32");
    } else if constexpr (type == weftFloat16) {
        WEFT_LOAD_REDUCED_FLOATS("f16x2", ".acc::f32");
    } else if constexpr (type == weftBfloat16) {
        WEFT_LOAD_REDUCED_FLOATS("bf16x2", ".acc::f32");
    } else if constexpr (type == weftFloat8e4m3) {
        WEFT_LOAD_REDUCED_FLOATS("e4m3x4", ".acc::f16");
    } else if constexpr (type == weftFloat8e5m2) {
        WEFT_LOAD_REDUCED_FLOATS("e5m2x4", ".acc::f16");
    } else if constexpr (type == weftFloat64) {
        WEFT_LOAD_REDUCED_8("add.f64");
    } else if constexpr (multimem_bytes<type> == 4) {
        if constexpr (op == weftSum)
            WEFT_LOAD_REDUCED("add.u32");
        else if constexpr (type == weftUint32 && least)
            WEFT_LOAD_REDUCED("min.u32");
        else if constexpr (type == weftUint32)
            WEFT_LOAD_REDUCED("max.u32");
        else if constexpr (least)
            WEFT_LOAD_REDUCED("min.s32");
        else
            WEFT_LOAD_REDUCED("max.s32");
    } else {
        if constexpr (op == weftSum)
            WEFT_LOAD_REDUCED_8("add.u64");
        else if constexpr (op == weftBand)
            WEFT_LOAD_REDUCED_8("and.b64");
        else if constexpr (op == weftBor)
            WEFT_LOAD_REDUCED_8("or.b64");
        else if constexpr (op == weftBxor)
            WEFT_LOAD_REDUCED_8("xor.b64");
        else if constexpr (type == weftUint64 && least)
            WEFT_LOAD_REDUCED_8("min.u64");
        else if constexpr (type == weftUint64)
            WEFT_LOAD_REDUCED_8("max.u64");
        else if constexpr (least)
            WEFT_LOAD_REDUCED_8("min.s64");
        else
            WEFT_LOAD_REDUCED_8("max.s64");
    }
    return pack;
}
#undef WEFT_LOAD_REDUCED
#undef WEFT_LOAD_REDUCED_8
#undef WEFT_LOAD_REDUCED_16
#undef WEFT_LOAD_REDUCED_FLOATS

// Bits of any type.
WEFT_DEVICE void multimem_store(std::byte* address, const Pack<16>& value) {
    const uint32_t(&words)[4] = value.words;
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}
WEFT_DEVICE void multimem_store(std::byte* address, const Pack<8>& value) {
    const uint64_t both = uint64_t(value.words[1]) << 32 | value.words[0];
    asm volatile("multimem.st.relaxed.sys.global.b64 [%0], %1;" ::"l"(address), "l"(both) : "memory");
}
WEFT_DEVICE void multimem_store(std::byte* address, const Pack<4>& value) {
    asm volatile("multimem.st.relaxed.sys.global.b32 [%0], %1;" ::"l"(address), "r"(value.words[0]) : "memory");
}
// Between accesses to the same memory by multimem and by a rank's own address. Each thread needs it, beside the barrier.
WEFT_DEVICE void fence_of_aliases() { asm volatile("fence.proxy.alias;" ::: "memory"); }

#else

template <class Use>
void each_copy(const std::byte* address, Use&& use) {
    const auto place = reinterpret_cast<uintptr_t>(address);
    const size_t offset = place % multicast_granule;
    const auto& copies = *reinterpret_cast<const MulticastCopies*>(place - offset);
    for (int i = 0; i < copies.count; ++i) use(i, copies.at[i] + offset);
}
// The precision in which the switch adds up: that of fp16 for fp8.
template <weftDataType_t type>
AccumulatorOf<type> in_precision_of_switch(AccumulatorOf<type> sum) {
    if constexpr (type == weftFloat8e4m3 || type == weftFloat8e5m2)
        return Arithmetic<weftFloat16>::widen(Arithmetic<weftFloat16>::round(sum));
    return sum;
}
template <weftDataType_t type, weftRedOp_t op>
Pack<multimem_bytes<type>> multimem_reduce(const std::byte* address) {
    constexpr int bytes = multimem_bytes<type>, words = words_of_pack<type, bytes>;
    WidenedWord<type> all[words];
    each_copy(address, [&](int number, const std::byte* copy) {
        const auto pack = load_pack<bytes>(copy);
        for (int w = 0; w < words; ++w) {
            const WidenedWord<type> wide = widen<type>(word_of<type>(pack, w));
            for (int i = 0; i < elements_of_word<type>; ++i)
                all[w].at[i] =
                    number == 0 ? wide.at[i]
                                : in_precision_of_switch<type>(weft::internal::combine<op>(all[w].at[i], wide.at[i]));
        }
    });
    Pack<bytes> pack;
    for (int w = 0; w < words; ++w) put_word<type>(pack, w, round<type>(all[w]));
    return pack;
}
template <int bytes>
void multimem_store(std::byte* address, const Pack<bytes>& value) {
    each_copy(address, [&](int, std::byte* copy) { store_pack(copy, value); });
}
inline void fence_of_aliases() {}

#endif

}  // namespace weft::internal::cuda
