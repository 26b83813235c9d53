// multimem.hpp: accesses to a multicast mapping: a load adds up the same 16 bytes of all ranks, and a store writes them
// for all ranks. On the device the switch does both (PTX multimem, sm_90). On the host a loop over the copies does.
// The sums of a load have the order of the switch on the device and that of the copies on the host.
#pragma once
#include "src/gpu/kernels/multicast_copies.hpp"
#include "src/gpu/kernels/packed_elements.hpp"

namespace weft::internal::cuda {

#if defined(__CUDACC__)

// Sums of 16-bit floats are rounded once, after the sum.
template <weftDataType_t type>
WEFT_DEVICE Pack<16> multimem_sum(const std::byte* address) {
    Pack<16> sum;
    uint32_t(&words)[4] = sum.words;
    if constexpr (type == weftFloat32)
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(address)
                     : "memory");
    else if constexpr (type == weftFloat16)
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(address)
                     : "memory");
    else
        asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "l"(address)
                     : "memory");
    return sum;
}
// Bits of any type.
WEFT_DEVICE void multimem_store(std::byte* address, const Pack<16>& value) {
    const uint32_t(&words)[4] = value.words;
    asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
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
template <weftDataType_t type>
Pack<16> multimem_sum(const std::byte* address) {
    WidenedWord<type> sums[words_of_pack<type, 16>];
    each_copy(address, [&](int number, const std::byte* copy) {
        const Pack<16> pack = load_pack<16>(copy);
        for (int w = 0; w < words_of_pack<type, 16>; ++w) {
            const WidenedWord<type> wide = widen<type>(word_of<type>(pack, w));
            for (int i = 0; i < elements_of_word<type>; ++i)
                sums[w].at[i] = number == 0 ? wide.at[i] : weft::internal::combine<weftSum>(sums[w].at[i], wide.at[i]);
        }
    });
    Pack<16> sum;
    for (int w = 0; w < words_of_pack<type, 16>; ++w) put_word<type>(sum, w, round<type>(sums[w]));
    return sum;
}
inline void multimem_store(std::byte* address, const Pack<16>& value) {
    each_copy(address, [&](int, std::byte* copy) { store_pack(copy, value); });
}
inline void fence_of_aliases() {}

#endif

}  // namespace weft::internal::cuda
