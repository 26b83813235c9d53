// optimizer_loops.hpp: the loops of the optimizers over fp32, for one instruction set (simd_vector.hpp).
#pragma once
#include "src/kernels/cpu_kernels.hpp"
#include "src/kernels/simd_vector.hpp"

namespace weft::internal {
namespace {

WEFT_INLINE Floats root_of(Floats value) {
#if defined(__x86_64__) && WEFT_VECTOR_BYTES == 64
    return (Floats)_mm512_maskz_sqrt_ps(0xffff, (__m512)value);
#elif defined(__x86_64__) && WEFT_VECTOR_BYTES == 32
    return (Floats)_mm256_sqrt_ps((__m256)value);
#elif defined(__x86_64__)
    return (Floats)_mm_sqrt_ps((__m128)value);
#elif defined(WEFT_NEON_CONVERSIONS)
    return (Floats)vsqrtq_f32((float32x4_t)value);
#else
    for (int k = 0; k < words; ++k) value[k] = __builtin_sqrtf(value[k]);
    return value;
#endif
}
struct Root {
    WEFT_INLINE Floats operator()(Floats value) const { return root_of(value); }
};

// A vector at an element of arrays; `partial`: only its first bytes exist.
template <bool partial>
struct Lanes {
    size_t first, bytes;

    WEFT_INLINE Floats get(const float* array) const {
        const char* const from = reinterpret_cast<const char*>(array + first);
        if constexpr (partial)
            return load_first<Floats>(from, bytes);
        else
            return load<Floats>(from);
    }
    WEFT_INLINE void put(float* array, Floats value) const {
        char* const to = reinterpret_cast<char*>(array + first);
        if constexpr (partial)
            store_first(to, value, bytes);
        else
            store(to, value, false);
    }
};
template <class Body>
WEFT_INLINE void over_lanes(size_t count, const Body& body) {
    size_t i = 0;
    for (; i + words <= count; i += words) body(Lanes<false>{i, sizeof(Floats)});
    if (i < count) body(Lanes<true>{i, (count - i) * sizeof(float)});
}

void sgd_step(const SgdStep& step, float* values, float* momentum, const float* gradient, size_t count) {
    if (!momentum) {
        over_lanes(
            count, [&](auto lanes) __attribute__((always_inline)) {
                Floats value = lanes.get(values);
                descend<Floats>(step, value, lanes.get(gradient));
                lanes.put(values, value);
            });
        return;
    }
    over_lanes(
        count, [&](auto lanes) __attribute__((always_inline)) {
            Floats value = lanes.get(values), kept = lanes.get(momentum);
            descend<Floats>(step, value, kept, lanes.get(gradient));
            lanes.put(values, value);
            lanes.put(momentum, kept);
        });
}

void adam_step(const AdamStep& step, float* values, float* first, float* second, const float* gradient, size_t count) {
    over_lanes(
        count, [&](auto lanes) __attribute__((always_inline)) {
            Floats value = lanes.get(values), mean = lanes.get(first), square = lanes.get(second);
            adam<Floats>(step, value, mean, square, lanes.get(gradient), Root());
            lanes.put(values, value);
            lanes.put(first, mean);
            lanes.put(second, square);
        });
}

void lamb_direction_of(const AdamStep& step, const float* values, const float* first, const float* second,
                       const float* gradient, float* direction, size_t count) {
    over_lanes(
        count, [&](auto lanes) __attribute__((always_inline)) {
            Floats mean = lanes.get(first), square = lanes.get(second);
            const Floats value = lanes.get(values);
            lanes.put(direction, lamb_direction<Floats>(step, value, mean, square, lanes.get(gradient), Root()));
        });
}

void lamb_step(const AdamStep& step, float rate, float* values, float* first, float* second, const float* gradient,
               size_t count) {
    over_lanes(
        count, [&](auto lanes) __attribute__((always_inline)) {
            Floats mean = lanes.get(first), square = lanes.get(second);
            const Floats value = lanes.get(values);
            const Floats direction = lamb_direction<Floats>(step, value, mean, square, lanes.get(gradient), Root());
            lanes.put(values, value - direction * rate);
            lanes.put(first, mean);
            lanes.put(second, square);
        });
}

// The number of partial sums does not depend on the instruction set, so all sets give the same bits.
double sum_of_squares(const float* values, size_t count) {
    constexpr size_t partial = 16;
    double sums[partial] = {};
    size_t i = 0;
    for (; i + partial <= count; i += partial)
        for (size_t k = 0; k < partial; ++k) sums[k] += double(values[i + k]) * double(values[i + k]);
    for (size_t k = 0; i + k < count; ++k) sums[k] += double(values[i + k]) * double(values[i + k]);
    for (size_t width = partial / 2; width > 0; width /= 2)
        for (size_t k = 0; k < width; ++k) sums[k] += sums[k + width];
    return sums[0];
}

bool all_finite(const float* values, size_t count) {
    Ints wrong{};
    over_lanes(
        count, [&](auto lanes)
                   __attribute__((always_inline)) { wrong |= ((Ints)lanes.get(values) & 0x7fffffff) >= 0x7f800000; });
    int any = 0;
    for (int k = 0; k < words; ++k) any |= wrong[k];
    return any == 0;
}

}  // namespace
}  // namespace weft::internal
