// float_mode.hpp: the processor's floating-point mode in which Weft computes: round to nearest, subnormal numbers kept.
// Sums, and costs by which ranks choose alike, must not depend on the mode of the caller's thread.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace weft {

// Sets the mode for its lifetime, where the thread has another one. Reentrant.
class FloatMode {
  public:
    FloatMode() : set_(!is_ours()) {
        if (set_) [[unlikely]] {
            before_ = read();
            write(ours);
        }
    }
    ~FloatMode() {
        if (set_) [[unlikely]]
            write(before_);
    }
    FloatMode(const FloatMode&) = delete;

    // For the rest of the thread's life.
    static void keep() { write(ours); }

  private:
#if defined(__x86_64__)
    using Word = uint32_t;
    static constexpr Word ours = 0x1f80;
    // Four sums that each other mode makes another one of. Reading the register takes several nanoseconds on some
    // processors, a twentieth of a short call.
    static bool is_ours() {
        __m128 left = _mm_setr_ps(1, 1, 0x1.8p-126f, 0x1p-140f),
               right = _mm_setr_ps(0x1p-26f, -0x1p-27f, -0x1p-126f, 0);
        asm volatile("" : "+x"(left), "+x"(right));  // known to the processor alone
        const __m128i sums = _mm_castps_si128(_mm_add_ps(left, right)),
                      right_sums = _mm_castps_si128(_mm_setr_ps(1, 1, 0x1p-127f, 0x1p-140f));
        return _mm_movemask_epi8(_mm_cmpeq_epi32(sums, right_sums)) == 0xffff;
    }
    static Word read() { return _mm_getcsr(); }
    static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
    using Word = uint64_t;
    static constexpr Word ours = 0;
    static bool is_ours() { return read() == ours; }
    static Word read() {
        Word word;
        asm volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void write(Word word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
#else
    using Word = uint32_t;
    static constexpr Word ours = 0;
    static bool is_ours() { return true; }
    static Word read() { return ours; }
    static void write(Word) {}
#endif
    bool set_;
    Word before_ = 0;
};

}  // namespace weft
