// lanes.hpp: vectors of WEFT_VECTOR_BYTES and what the movers need of them: unaligned and streaming access, the small
// floats' conversions, the reductions of base/arithmetic.hpp on all lanes at once. Included once by each movers_*.cpp,
// which is compiled for its instruction set; hence everything is local to the file that includes it, and nothing of std
// is called: no function compiled for AVX-512 may become the copy that the linker gives to everyone.
#pragma once
#include "src/base/arithmetic.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(WEFT_NEON_CONVERSIONS)
#include <arm_neon.h>
#endif

namespace weft {
namespace {

constexpr size_t line_bytes = 64;
WEFT_INLINE size_t bytes_to_line(const void* address) { return -reinterpret_cast<uintptr_t>(address) & (line_bytes - 1); }

template <class T, int lanes>
struct VectorOf {
    typedef T Type __attribute__((vector_size(sizeof(T) * lanes)));
};
template <class T, int lanes>
using Vector = typename VectorOf<T, lanes>::Type;

template <class V>
struct [[gnu::packed, gnu::may_alias]] Unaligned {
    V value;
};

template <class V>
WEFT_INLINE V load(const char* source) {
    return reinterpret_cast<const Unaligned<V>*>(source)->value;
}

WEFT_INLINE bool is_aligned(const void* address, size_t bytes) { return (reinterpret_cast<uintptr_t>(address) & (bytes - 1)) == 0; }

// Past the caches if wanted and if this vector, here, can be; 8 bytes are too few to be worth it.
template <class V>
WEFT_INLINE void store(char* destination, V value, [[maybe_unused]] bool streaming) {
#if defined(__x86_64__)
    if constexpr (sizeof(V) >= 16) {
        if (streaming && is_aligned(destination, sizeof(V))) {
#if defined(__AVX512F__)
            if constexpr (sizeof(V) == 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(destination), (__m512i)value);
#endif
#if defined(__AVX__)
            if constexpr (sizeof(V) == 32) _mm256_stream_si256(reinterpret_cast<__m256i*>(destination), (__m256i)value);
#endif
            if constexpr (sizeof(V) == 16) _mm_stream_si128(reinterpret_cast<__m128i*>(destination), (__m128i)value);
            return;
        }
    }
#endif
    reinterpret_cast<Unaligned<V>*>(destination)->value = value;
}

// Streaming stores are weakly ordered: a flag stored later could be seen before them.
WEFT_INLINE void fence_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

#if defined(__AVX512BW__) && defined(__AVX512VL__)
// The first `bytes` bytes, fewer than a vector has; memory behind them is not touched.
#define WEFT_PARTIAL_VECTORS 1
template <class V>
WEFT_INLINE V load_first(const char* source, size_t bytes) {
    const uint64_t mask = (uint64_t(1) << bytes) - 1;
    if constexpr (sizeof(V) == 64) return (V)_mm512_maskz_loadu_epi8(mask, source);
    else if constexpr (sizeof(V) == 32) return (V)_mm256_maskz_loadu_epi8(__mmask32(mask), source);
    else return (V)_mm_maskz_loadu_epi8(__mmask16(mask), source);
}
template <class V>
WEFT_INLINE void store_first(char* destination, V value, size_t bytes) {
    const uint64_t mask = (uint64_t(1) << bytes) - 1;
    if constexpr (sizeof(V) == 64) _mm512_mask_storeu_epi8(destination, mask, (__m512i)value);
    else if constexpr (sizeof(V) == 32) _mm256_mask_storeu_epi8(destination, __mmask32(mask), (__m256i)value);
    else _mm_mask_storeu_epi8(destination, __mmask16(mask), (__m128i)value);
}
#endif

// widen: exact; round: once; as Arithmetic<type> does it, on a vector.
template <weftDataType_t type>
struct Lanes {
    template <int lanes, class V>
    static WEFT_INLINE V widen(V value) {
        return value;
    }
    template <int lanes, class V>
    static WEFT_INLINE V round(V value) {
        return value;
    }
};

template <>
struct Lanes<weftBfloat16> {
    template <int lanes>
    static WEFT_INLINE Vector<float, lanes> widen(Vector<uint16_t, lanes> value) {
        return (Vector<float, lanes>)(__builtin_convertvector(value, Vector<uint32_t, lanes>) << 16);
    }
    template <int lanes>
    static WEFT_INLINE Vector<uint16_t, lanes> round(Vector<float, lanes> value) {
        const auto bits = (Vector<uint32_t, lanes>)value;
        const auto nearest = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        const auto nan = bits >> 16 | 0x40;
        return __builtin_convertvector(value != value ? nan : nearest, Vector<uint16_t, lanes>);
    }
};

// The steps of SmallFloat, each alternative computed and one chosen.
template <weftDataType_t type>
struct SmallFloatLanes {
    using Format = typename Arithmetic<type>::Format;
    using Element = typename Arithmetic<type>::Element;
    static constexpr int32_t infinite_or_nan = type == weftFloat8e4m3 ? Format::nan : Format::infinity;

    template <int lanes>
    static WEFT_INLINE Vector<float, lanes> widen(Vector<Element, lanes> value) {
        using Floats = Vector<float, lanes>;
        using Ints = Vector<int32_t, lanes>;
        const Ints bits = (Ints)__builtin_convertvector(value, Vector<uint32_t, lanes>);
        const Ints sign = (bits & (Format::magnitude + 1)) << Format::sign_shift;
        const Ints rest = bits & Format::magnitude;
        const Ints normal = (rest << Format::shift) + Format::rebias;
        const Floats subnormal = (Floats)(normal + (1 << 23)) - __builtin_bit_cast(float, Format::smallest_normal);
        Ints wide = rest < (Format::infinity & -Format::infinity) ? (Ints)subnormal : normal;
        wide |= rest >= infinite_or_nan ? Ints{} + 0x7f800000 : Ints{};
        if constexpr (type == weftFloat8e4m3) wide |= rest >= infinite_or_nan ? Ints{} + 0x400000 : Ints{};
        return (Floats)(wide | sign);
    }

    template <int lanes>
    static WEFT_INLINE Vector<Element, lanes> round(Vector<float, lanes> value) {
        using Floats = Vector<float, lanes>;
        using Ints = Vector<int32_t, lanes>;
        using Unsigned = Vector<uint32_t, lanes>;
        const Ints bits = (Ints)value;
        const Ints rest = bits & 0x7fffffff;
        const Ints sign = (bits >> Format::sign_shift) & (Format::magnitude + 1);
        const auto odd = (Unsigned)rest >> Format::shift & 1;
        const Ints normal = (Ints)((Unsigned)rest + odd + uint32_t((1 << (Format::shift - 1)) - 1 - Format::rebias)) >> Format::shift;
        const Ints subnormal = (Ints)((Floats)rest + __builtin_bit_cast(float, Format::subnormal_magic)) - Format::subnormal_magic;
        const Ints limit = Ints{} + (Format::saturates ? Format::largest : Format::infinity);
        Ints small = rest < Format::smallest_normal ? subnormal : normal;
        small = small < limit ? small : limit;
        if constexpr (type == weftFloat8e5m2) small = rest == 0x7f800000 ? Ints{} + Format::infinity : small;
        small = rest > 0x7f800000 ? Ints{} + Format::nan : small;
        return __builtin_convertvector((Unsigned)(small | sign), Vector<Element, lanes>);
    }
};
template <> struct Lanes<weftFloat8e4m3> : SmallFloatLanes<weftFloat8e4m3> {};
template <> struct Lanes<weftFloat8e5m2> : SmallFloatLanes<weftFloat8e5m2> {};

template <>
struct Lanes<weftFloat16> : SmallFloatLanes<weftFloat16> {
    // The processor's own conversion where there is one for so many lanes. (GCC 12 warns of the forms without a mask.)
#if defined(__AVX512F__)
    static constexpr __mmask16 every = 0xffff;
#endif
    template <int lanes>
    static WEFT_INLINE Vector<float, lanes> widen(Vector<uint16_t, lanes> value) {
#if defined(__AVX512F__)
        if constexpr (lanes == 16) return (Vector<float, lanes>)_mm512_maskz_cvtph_ps(every, (__m256i)value);
#endif
#if defined(__F16C__)
        if constexpr (lanes == 8) return (Vector<float, lanes>)_mm256_cvtph_ps((__m128i)value);
#endif
#if defined(WEFT_NEON_CONVERSIONS)
        if constexpr (lanes == 4) return (Vector<float, lanes>)vcvt_f32_f16((float16x4_t)value);
#endif
        return SmallFloatLanes<weftFloat16>::template widen<lanes>(value);
    }
    template <int lanes>
    static WEFT_INLINE Vector<uint16_t, lanes> round(Vector<float, lanes> value) {
#if defined(__AVX512F__)
        if constexpr (lanes == 16) return (Vector<uint16_t, lanes>)_mm512_maskz_cvtps_ph(every, (__m512)value, _MM_FROUND_TO_NEAREST_INT);
#endif
#if defined(__F16C__)
        if constexpr (lanes == 8) return (Vector<uint16_t, lanes>)_mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
#endif
#if defined(WEFT_NEON_CONVERSIONS)
        if constexpr (lanes == 4) return (Vector<uint16_t, lanes>)vcvt_f16_f32((float32x4_t)value);
#endif
        return SmallFloatLanes<weftFloat16>::template round<lanes>(value);
    }
};

template <class T> struct SameSize;
template <> struct SameSize<float> { using Signed = int32_t; using Unsigned = uint32_t; };
template <> struct SameSize<double> { using Signed = int64_t; using Unsigned = uint64_t; };
template <> struct SameSize<int8_t> { using Unsigned = uint8_t; };
template <> struct SameSize<uint8_t> { using Unsigned = uint8_t; };
template <> struct SameSize<int32_t> { using Unsigned = uint32_t; };
template <> struct SameSize<uint32_t> { using Unsigned = uint32_t; };
template <> struct SameSize<int64_t> { using Unsigned = uint64_t; };
template <> struct SameSize<uint64_t> { using Unsigned = uint64_t; };

template <class T, int lanes, weftRedOp_t op>
WEFT_INLINE Vector<T, lanes> combine_lanes(Vector<T, lanes> left, Vector<T, lanes> right) {
    using V = Vector<T, lanes>;
    if constexpr (std::is_integral_v<T>) {
        using U = Vector<typename SameSize<T>::Unsigned, lanes>;  // signed overflow would be undefined
        if constexpr (op == weftSum) return (V)((U)left + (U)right);
        if constexpr (op == weftProd) return (V)((U)left * (U)right);
        if constexpr (op == weftMax) return left > right ? left : right;
        if constexpr (op == weftMin) return left < right ? left : right;
    } else {
        if constexpr (op == weftSum) return left + right;
        if constexpr (op == weftProd) return left * right;
        // Both choices agree but for zeros of either sign, where each takes its second operand, and for NaN.
        using Bits = Vector<typename SameSize<T>::Signed, lanes>;
        const Bits unordered = (Bits)(left != left) | (Bits)(right != right);
        if constexpr (op == weftMax) {
            return (V)(((Bits)(left > right ? left : right) & (Bits)(right > left ? right : left)) | unordered);
        }
        if constexpr (op == weftMin) {
            return (V)((Bits)(left < right ? left : right) | (Bits)(right < left ? right : left) | unordered);
        }
    }
}

template <class T, int lanes>
WEFT_INLINE Vector<T, lanes> average_lanes(Vector<T, lanes> sum, uint32_t divisor) {
    if constexpr (std::is_floating_point_v<T>) {
        return sum / T(divisor);
    } else {
        alignas(sizeof sum) T lane[lanes];
        __builtin_memcpy(lane, &sum, sizeof sum);
        for (int i = 0; i < lanes; ++i) {
            // Exact: a quotient of such integers that is not whole lies further from the next whole one than it is rounded.
            if constexpr (sizeof(T) == 1) lane[i] = T(float(lane[i]) / float(divisor));
            else if constexpr (sizeof(T) == 4) lane[i] = T(double(lane[i]) / double(divisor));
            else lane[i] = average(lane[i], divisor);
        }
        __builtin_memcpy(&sum, lane, sizeof sum);
        return sum;
    }
}

}  // namespace
}  // namespace weft
