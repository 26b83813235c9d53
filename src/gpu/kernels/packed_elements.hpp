// packed_elements.hpp: elements in memory words of 4 bytes (8 for 8-byte elements), and their conversion for
// arithmetic. Results have the bits of base/arithmetic.hpp. Conversions of small floats use device instructions where
// they exist; only the NaN's bits are unspecified, as on the host.
#pragma once
#include <type_traits>

#include "src/base/arithmetic.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"

namespace weft::internal::cuda {

template <weftDataType_t type>
using ElementOf = typename Arithmetic<type>::Element;
template <weftDataType_t type>
using AccumulatorOf = typename Arithmetic<type>::Accumulator;
template <weftDataType_t type>
using WordOf = std::conditional_t<sizeof(ElementOf<type>) == 8, uint64_t, uint32_t>;
template <weftDataType_t type>
constexpr int elements_of_word = sizeof(WordOf<type>) / sizeof(ElementOf<type>);

// A word's elements, widened.
template <weftDataType_t type>
struct WidenedWord {
    AccumulatorOf<type> at[elements_of_word<type>];
};

template <weftDataType_t type>
WEFT_DEVICE WidenedWord<type> widen_each(WordOf<type> word) {
    using Element = ElementOf<type>;
    using Bits = std::conditional_t<sizeof(Element) == 1, uint8_t,
                                    std::conditional_t<sizeof(Element) == 2, uint16_t, WordOf<type>>>;
    WidenedWord<type> wide;
    for (int i = 0; i < elements_of_word<type>; ++i)
        wide.at[i] =
            Arithmetic<type>::widen(__builtin_bit_cast(Element, Bits(word >> 8 * sizeof(Element) * unsigned(i))));
    return wide;
}
template <weftDataType_t type>
WEFT_DEVICE WordOf<type> round_each(const WidenedWord<type>& wide) {
    using Element = ElementOf<type>;
    using Bits = std::conditional_t<sizeof(Element) == 1, uint8_t,
                                    std::conditional_t<sizeof(Element) == 2, uint16_t, WordOf<type>>>;
    WordOf<type> word = 0;
    for (int i = 0; i < elements_of_word<type>; ++i)
        word |= WordOf<type>(__builtin_bit_cast(Bits, Arithmetic<type>::round(wide.at[i])))
                << 8 * sizeof(Element) * unsigned(i);
    return word;
}

#if defined(__CUDA_ARCH__)

WEFT_DEVICE float widen_half(uint32_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(uint16_t(bits)));
    return value;
}

template <weftDataType_t type>
WEFT_DEVICE WidenedWord<type> widen(WordOf<type> word) {
    if constexpr (type == weftFloat16) {
        return {widen_half(word), widen_half(word >> 16)};
    } else if constexpr (type == weftFloat8e5m2) {  // e5m2 is the upper byte of an fp16
        return {widen_half(word << 8 & 0xff00), widen_half(word & 0xff00), widen_half(word >> 8 & 0xff00),
                widen_half(word >> 16 & 0xff00)};
#if __CUDA_ARCH__ >= 890
    } else if constexpr (type == weftFloat8e4m3) {
        uint32_t low, high;
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(low) : "h"(uint16_t(word)));
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(high) : "h"(uint16_t(word >> 16)));
        return {widen_half(low), widen_half(low >> 16), widen_half(high), widen_half(high >> 16)};
#endif
    } else {
        return widen_each<type>(word);
    }
}

#if __CUDA_ARCH__ >= 890
// Correct for e4m3 as it is. e5m2 keeps infinities, which the instruction would make finite.
template <weftDataType_t type>
WEFT_DEVICE uint32_t round_pair(float low, float high) {
    uint16_t pair;
    if constexpr (type == weftFloat8e4m3) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    } else {
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
        if (fabsf(low) == __builtin_huge_valf()) pair = uint16_t((pair & 0xff80) | 0x7c);
        if (fabsf(high) == __builtin_huge_valf()) pair = uint16_t((pair & 0x80ff) | 0x7c00);
    }
    return pair;
}
#endif

template <weftDataType_t type>
WEFT_DEVICE WordOf<type> round(const WidenedWord<type>& wide) {
    if constexpr (type == weftFloat16) {
        uint16_t low, high;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"(wide.at[0]));
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(wide.at[1]));
        return uint32_t(high) << 16 | low;
#if __CUDA_ARCH__ >= 800
    } else if constexpr (type == weftBfloat16) {
        uint32_t word;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(wide.at[1]), "f"(wide.at[0]));
        return word;
#endif
#if __CUDA_ARCH__ >= 890
    } else if constexpr (type == weftFloat8e4m3 || type == weftFloat8e5m2) {
        return round_pair<type>(wide.at[0], wide.at[1]) | round_pair<type>(wide.at[2], wide.at[3]) << 16;
#endif
    } else {
        return round_each<type>(wide);
    }
}

#else

template <weftDataType_t type>
WEFT_DEVICE WidenedWord<type> widen(WordOf<type> word) {
    return widen_each<type>(word);
}
template <weftDataType_t type>
WEFT_DEVICE WordOf<type> round(const WidenedWord<type>& wide) {
    return round_each<type>(wide);
}

#endif

// Words of a pack, of 4 or 8 bytes.
template <weftDataType_t type, int bytes>
constexpr int words_of_pack = bytes / int(sizeof(WordOf<type>));
template <weftDataType_t type, int bytes>
WEFT_DEVICE WordOf<type> word_of(const Pack<bytes>& pack, int i) {
    if constexpr (sizeof(WordOf<type>) == 8)
        return uint64_t(pack.words[2 * i + 1]) << 32 | pack.words[2 * i];
    else
        return pack.words[i];
}
template <weftDataType_t type, int bytes>
WEFT_DEVICE void put_word(Pack<bytes>& pack, int i, WordOf<type> word) {
    if constexpr (sizeof(WordOf<type>) == 8) {
        pack.words[2 * i] = uint32_t(word);
        pack.words[2 * i + 1] = uint32_t(word >> 32);
    } else {
        pack.words[i] = word;
    }
}

// The reduction of one operation. `adds`: sums and averages, which have their own code; otherwise each word selects the
// reduction.
template <weftDataType_t type, bool adds>
class Reducer {
  public:
    using A = AccumulatorOf<type>;

    WEFT_DEVICE explicit Reducer(const KernelArguments& arguments)
        : op_(arguments.op),
          average_of_(arguments.average_of),
          unsigned_(arguments.unsigned_elements),
          scaled_(arguments.scaled || arguments.rounds_shares),
          shares_(arguments.share_of != 0 && !arguments.rounds_shares) {
        if constexpr (adds && std::is_floating_point_v<A>) {
            divisor_ = average_divisor<A>(average_of_, arguments.share_of);
            if (arguments.share_of != 0) scalar_ = A(1) / A(arguments.share_of);
        }
        if (!arguments.scaled) return;
        ElementOf<type> element;
        const void* scalar = arguments.scalar_pointer ? arguments.scalar_pointer : &arguments.scalar;
        __builtin_memcpy(&element, scalar, sizeof element);
        scalar_ = Arithmetic<type>::widen(element);
    }

    // Whether this rank's input is scaled: by its own factor or by its share of an average.
    WEFT_DEVICE bool scaled() const { return scaled_; }

    WEFT_DEVICE WidenedWord<type> combine(const WidenedWord<type>& left, const WidenedWord<type>& right) const {
        if constexpr (adds) return each<weftSum>(left, right);
        if (op_ == weftProd) return each<weftProd>(left, right);
        if constexpr (std::is_integral_v<A>) {
            if (is_bitwise(op_)) return combine_bits(left, right);
            return choose(left, right);
        }
        return op_ == weftMax ? each<weftMax>(left, right) : each<weftMin>(left, right);
    }
    // Whether contribution() changes anything.
    WEFT_DEVICE bool shares() const { return shares_; }
    // A contribution in the form in which one rank sums those of all ranks.
    WEFT_DEVICE WidenedWord<type> contribution(WidenedWord<type> value) const {
        if constexpr (adds && std::is_floating_point_v<A>) {
            if (shares_)
                for (int i = 0; i < elements_of_word<type>; ++i) value.at[i] *= scalar_;
        }
        return value;
    }
    // Times the factor, rounded to the type as if the scaled input lay in memory.
    WEFT_DEVICE WidenedWord<type> scale(const WidenedWord<type>& value) const {
        WidenedWord<type> factor;
        for (int i = 0; i < elements_of_word<type>; ++i) factor.at[i] = scalar_;
        return widen<type>(round<type>(each<weftProd>(factor, value)));
    }
    WEFT_DEVICE WidenedWord<type> finish(WidenedWord<type> value) const {
        if constexpr (adds) {
            if (average_of_ != 0) return divide(value, divisor_, average_of_);
        }
        return value;
    }

  private:
    template <weftRedOp_t op>
    static WEFT_DEVICE WidenedWord<type> each(const WidenedWord<type>& left, const WidenedWord<type>& right) {
        WidenedWord<type> result;
        for (int i = 0; i < elements_of_word<type>; ++i)
            result.at[i] = weft::internal::combine<op>(left.at[i], right.at[i]);
        return result;
    }
    // One formula for and, or and xor keeps the code small. It joins the bits that both operands have with the bits
    // that only one has: `or` takes both, `and` the first, `xor` the second.
    WEFT_DEVICE WidenedWord<type> combine_bits(const WidenedWord<type>& left, const WidenedWord<type>& right) const {
        const A shared = A(op_ == weftBxor ? 0 : -1), differing = A(op_ == weftBand ? 0 : -1);
        WidenedWord<type> result;
        for (int i = 0; i < elements_of_word<type>; ++i)
            result.at[i] = A((left.at[i] & right.at[i] & shared) | ((left.at[i] ^ right.at[i]) & differing));
        return result;
    }
    // The greater or the lesser of integers. Unsigned ones compare as signed ones do if their first bits are flipped.
    WEFT_DEVICE WidenedWord<type> choose(const WidenedWord<type>& left, const WidenedWord<type>& right) const {
        const A flipped = unsigned_ ? A(A(1) << (8 * sizeof(A) - 1)) : A(0);
        WidenedWord<type> result;
        for (int i = 0; i < elements_of_word<type>; ++i)
            result.at[i] =
                (A(left.at[i] ^ flipped) > A(right.at[i] ^ flipped)) == (op_ == weftMax) ? left.at[i] : right.at[i];
        return result;
    }
    // Divides the magnitude, towards zero, so that both kinds of integers have one division.
    static WEFT_DEVICE A quotient(A sum, uint32_t divisor) {
        using Unsigned = std::make_unsigned_t<A>;
        const bool negative = (divisor & KernelArguments::of_unsigned) == 0 && sum < 0;
        const auto magnitude = negative ? Unsigned(0 - Unsigned(sum)) : Unsigned(sum);
        // 64-bit division is much slower.
        using Dividend = std::conditional_t<sizeof(A) <= 4, uint32_t, uint64_t>;
        const auto whole = Unsigned(Dividend(magnitude) / (divisor & ~KernelArguments::of_unsigned));
        return A(negative ? Unsigned(0 - whole) : whole);
    }
    // Not inlined: divisions are long and rarely needed.
    static WEFT_DEVICE_COLD WidenedWord<type> divide(WidenedWord<type> sum, A divisor, uint32_t average_of) {
        WEFT_UNROLL
        for (int i = 0; i < elements_of_word<type>; ++i) {
            if constexpr (std::is_floating_point_v<A>)
                sum.at[i] /= divisor;
            else
                sum.at[i] = quotient(sum.at[i], average_of);
        }
        return sum;
    }

    weftRedOp_t op_;
    uint32_t average_of_;
    bool unsigned_, scaled_, shares_;
    A scalar_ = 0;
    A divisor_ = 0;
};

}  // namespace weft::internal::cuda
