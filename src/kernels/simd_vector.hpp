// simd_vector.hpp: vectors of WEFT_VECTOR_BYTES (64 for AVX-512, 32 for AVX2, otherwise 16) for the CPU kernels.
// It has unaligned and streaming access, conversions of small floats, and base/arithmetic.hpp's reductions on all lanes.
// Each cpu_kernels_*.cpp includes it once and is compiled for its instruction set. So everything is local to that file,
// and no function of std is called: the linker might use a copy compiled for AVX-512 everywhere.
#pragma once
#include "src/base/arithmetic.hpp"
#include "src/base/small_copy.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(WEFT_NEON_CONVERSIONS)
#include <arm_neon.h>
#endif

namespace weft::internal {
namespace {

constexpr size_t line_bytes = 64;
WEFT_INLINE size_t bytes_to_line(const void* address) {
    return -reinterpret_cast<uintptr_t>(address) & (line_bytes - 1);
}

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

WEFT_INLINE bool is_aligned(const void* address, size_t bytes) {
    return (reinterpret_cast<uintptr_t>(address) & (bytes - 1)) == 0;
}

// Streams if asked, if the address is aligned, and if the vector has at least 16 bytes.
template <class V>
WEFT_INLINE void store(char* destination, V value, [[maybe_unused]] bool streaming) {
#if defined(__x86_64__)
    if constexpr (sizeof(V) >= 16) {
        if (streaming && is_aligned(destination, sizeof(V))) {
#if WEFT_VECTOR_BYTES == 64
            if constexpr (sizeof(V) == 64) _mm512_stream_si512(reinterpret_cast<__m512i*>(destination), (__m512i)value);
#endif
#if WEFT_VECTOR_BYTES >= 32
            if constexpr (sizeof(V) == 32) _mm256_stream_si256(reinterpret_cast<__m256i*>(destination), (__m256i)value);
#endif
            if constexpr (sizeof(V) == 16) _mm_stream_si128(reinterpret_cast<__m128i*>(destination), (__m128i)value);
            return;
        }
    }
#endif
    reinterpret_cast<Unaligned<V>*>(destination)->value = value;
}

// The fence after streaming waits for memory. To fetch this many bytes into the cache takes as long.
constexpr size_t least_streamed_bytes = 1024;

// Streaming stores are weakly ordered: a flag stored later could be seen before them.
WEFT_INLINE void fence_streaming() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

template <class T>
WEFT_INLINE uint64_t load_word(const char* source) {
    T word;
    __builtin_memcpy(&word, source, sizeof word);
    return word;
}
// The first 1 to 8 bytes and zeros, from two words that overlap: a copy through memory would stall.
WEFT_INLINE uint64_t load_first_word(const char* source, size_t bytes) {
    static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    if (bytes >= 8) return load_word<uint64_t>(source);
    if (bytes >= 4) return load_word<uint32_t>(source) | load_word<uint32_t>(source + bytes - 4) << (8 * bytes - 32);
    if (bytes >= 2) return load_word<uint16_t>(source) | load_word<uint16_t>(source + bytes - 2) << (8 * bytes - 16);
    return load_word<uint8_t>(source);
}

// The first `bytes` bytes, fewer than a vector has. The function does not access memory behind them.
template <class V>
WEFT_INLINE V load_first(const char* source, size_t bytes) {
#if WEFT_VECTOR_BYTES == 64
    const uint64_t mask = (uint64_t(1) << bytes) - 1;
    if constexpr (sizeof(V) == 64)
        return (V)_mm512_maskz_loadu_epi8(mask, source);
    else
        return (V)_mm256_maskz_loadu_epi8(__mmask32(mask), source);
#else
    Vector<uint64_t, sizeof(V) / 8> value{};
    for (size_t k = 0; k < sizeof(V) / 8; ++k) {
        if (bytes > 8 * k) value[k] = load_first_word(source + 8 * k, bytes - 8 * k);
    }
    return (V)value;
#endif
}
template <class V>
WEFT_INLINE void store_first(char* destination, V value, size_t bytes) {
#if WEFT_VECTOR_BYTES == 64
    const uint64_t mask = (uint64_t(1) << bytes) - 1;
    if constexpr (sizeof(V) == 64)
        _mm512_mask_storeu_epi8(destination, mask, (__m512i)value);
    else
        _mm256_mask_storeu_epi8(destination, __mmask32(mask), (__m256i)value);
#else
    copy_small<sizeof(V) - 1>(destination, &value, bytes);
#endif
}

// Packed: elements as in memory. Wide: elements as they are combined, in one vector or several parts.
// widen() is exact and round() rounds once, as Arithmetic<type> does, lane by lane.
template <class T, int lanes, int parts_>
struct PartsOf {
    using Part = Vector<T, lanes>;
    static constexpr int parts = parts_;
    struct Wide {
        Part part[parts];
    };
};

template <weftDataType_t type>
struct SimdVector
    : PartsOf<typename Arithmetic<type>::Element, WEFT_VECTOR_BYTES / sizeof(typename Arithmetic<type>::Element), 1> {
    using typename SimdVector::PartsOf::Part;
    using typename SimdVector::PartsOf::Wide;
    using Packed = Part;
    static WEFT_INLINE Wide widen(Packed value) { return {{value}}; }
    static WEFT_INLINE Packed round(const Wide& value) { return value.part[0]; }
};

// Each 32-bit lane holds two or four small floats, and part k is the k-th of every lane, so no data cross lanes.
constexpr int words = WEFT_VECTOR_BYTES / 4;
using Words = Vector<uint32_t, words>;
using Ints = Vector<int32_t, words>;
using Floats = Vector<float, words>;

template <>
struct SimdVector<weftBfloat16> : PartsOf<float, words, 2> {
    using Packed = Words;
    static WEFT_INLINE Wide widen(Packed value) {
        return {{Bfloat16Format::widen<Floats>(value), Bfloat16Format::widen<Floats>(value >> 16)}};
    }
    static WEFT_INLINE Packed round(const Wide& value) {
        return Bfloat16Format::round_upper<Floats, Words>(value.part[0]) >> 16 |
               (Bfloat16Format::round_upper<Floats, Words>(value.part[1]) & 0xffff0000u);
    }
};

template <weftDataType_t type>
struct SmallFloatVector : PartsOf<float, words, 4 / sizeof(typename Arithmetic<type>::Element)> {
    using SmallFloatVector::PartsOf::parts;
    using typename SmallFloatVector::PartsOf::Wide;
    using Packed = Words;
    using Format = typename Arithmetic<type>::Format;
    static_assert(Format::bits * parts == 32);

    static WEFT_INLINE Wide widen(Packed value) {
        Wide wide;
        for (int k = 0; k < parts; ++k)
            wide.part[k] = Format::template widen<Floats, Ints, Words>(value >> (k * Format::bits));
        return wide;
    }
    static WEFT_INLINE Packed round(const Wide& value) {
        Packed packed{};
        for (int k = 0; k < parts; ++k)
            packed |= Format::template round<Floats, Ints, Words>(value.part[k]) << (k * Format::bits);
        return packed;
    }
};
template <>
struct SimdVector<weftFloat8e4m3> : SmallFloatVector<weftFloat8e4m3> {};
template <>
struct SimdVector<weftFloat8e5m2> : SmallFloatVector<weftFloat8e5m2> {};

#if WEFT_VECTOR_BYTES >= 32 || defined(WEFT_NEON_CONVERSIONS)
// The processor converts adjacent elements, so a vector has as many elements as one of fp32. GCC 12 warns of the 512-bit
// conversions without a mask.
template <>
struct SimdVector<weftFloat16> : PartsOf<float, words, 1> {
    using Packed = Vector<uint16_t, words>;
    static WEFT_INLINE Wide widen(Packed value) {
#if defined(WEFT_NEON_CONVERSIONS)
        return {{(Floats)vcvt_f32_f16((float16x4_t)value) }};
#elif WEFT_VECTOR_BYTES == 64
        return {{(Floats)_mm512_maskz_cvtph_ps(0xffff, (__m256i)value) }};
#else
        return {{(Floats)_mm256_cvtph_ps((__m128i)value)}};
#endif
    }
    static WEFT_INLINE Packed round(const Wide& value) {
#if defined(WEFT_NEON_CONVERSIONS)
        return (Packed)vcvt_f16_f32((float32x4_t)value.part[0]);
#elif WEFT_VECTOR_BYTES == 64
        return (Packed)_mm512_maskz_cvtps_ph(0xffff, (__m512)value.part[0], _MM_FROUND_TO_NEAREST_INT);
#else
        return (Packed)_mm256_cvtps_ph((__m256)value.part[0], _MM_FROUND_TO_NEAREST_INT);
#endif
    }
};
#else
template <>
struct SimdVector<weftFloat16> : SmallFloatVector<weftFloat16> {};
#endif

template <class T, int lanes, weftRedOp_t op>
WEFT_INLINE Vector<T, lanes> combine_lanes(Vector<T, lanes> left, Vector<T, lanes> right) {
    using V = Vector<T, lanes>;
    if constexpr (std::is_integral_v<T>) {
        using U = Vector<std::make_unsigned_t<T>, lanes>;  // signed overflow would be undefined
        if constexpr (op == weftSum || op == weftAvg) return (V)((U)left + (U)right);
        if constexpr (op == weftProd) return (V)((U)left * (U)right);
        if constexpr (op == weftMax) return left > right ? left : right;
        if constexpr (op == weftMin) return left < right ? left : right;
        if constexpr (op == weftBand) return left & right;
        if constexpr (op == weftBor) return left | right;
        if constexpr (op == weftBxor) return left ^ right;
    } else {
        if constexpr (op == weftSum || op == weftAvg) return left + right;
        if constexpr (op == weftProd) return left * right;
        // The two selections differ only for zeros of different sign, where each takes its second operand, and for NaN.
        using Bits = Vector<std::conditional_t<sizeof(T) == 4, int32_t, int64_t>, lanes>;
        const Bits unordered = (Bits)(left != left) | (Bits)(right != right);
        if constexpr (op == weftMax) {
            return (V)(((Bits)(left > right ? left : right) & (Bits)(right > left ? right : left)) | unordered);
        }
        if constexpr (op == weftMin) {
            return (V)((Bits)(left < right ? left : right) | (Bits)(right < left ? right : left) | unordered);
        }
    }
}

template <class T, int lanes, class Divisor>
WEFT_INLINE Vector<T, lanes> average_lanes(Vector<T, lanes> sum, Divisor divisor) {
    if constexpr (std::is_floating_point_v<T>) {
        return sum / divisor;
    } else {
        alignas(sizeof sum) T lane[lanes];
        __builtin_memcpy(lane, &sum, sizeof sum);
        for (int i = 0; i < lanes; ++i) {
            // Exact: a quotient that is not whole is further from the next whole number than the rounding error.
            if constexpr (sizeof(T) == 1)
                lane[i] = T(float(lane[i]) / float(divisor));
            else if constexpr (sizeof(T) == 4)
                lane[i] = T(double(lane[i]) / double(divisor));
            else
                lane[i] = average(lane[i], divisor);
        }
        __builtin_memcpy(&sum, lane, sizeof sum);
        return sum;
    }
}

// The operation on all parts.
template <weftDataType_t type, weftRedOp_t op>
WEFT_INLINE typename SimdVector<type>::Wide combine_wide(const typename SimdVector<type>::Wide& left,
                                                         const typename SimdVector<type>::Wide& right) {
    using T = typename Arithmetic<type>::Accumulator;
    typename SimdVector<type>::Wide result;
    for (int k = 0; k < SimdVector<type>::parts; ++k) {
        result.part[k] = combine_lanes<T, sizeof(result.part[k]) / sizeof(T), op>(left.part[k], right.part[k]);
    }
    return result;
}
template <weftDataType_t type, class Divisor>
WEFT_INLINE typename SimdVector<type>::Wide average_wide(const typename SimdVector<type>::Wide& sum, Divisor divisor) {
    using T = typename Arithmetic<type>::Accumulator;
    typename SimdVector<type>::Wide result;
    for (int k = 0; k < SimdVector<type>::parts; ++k) {
        result.part[k] = average_lanes<T, sizeof(result.part[k]) / sizeof(T), Divisor>(sum.part[k], divisor);
    }
    return result;
}
template <weftDataType_t type>
WEFT_INLINE typename SimdVector<type>::Wide broadcast(typename Arithmetic<type>::Accumulator value) {
    typename SimdVector<type>::Wide result;
    for (auto& part : result.part) part = value - typename SimdVector<type>::Part{};  // 0 + -0 would lose the sign
    return result;
}

}  // namespace
}  // namespace weft::internal
