// float_mode.hpp: the floating-point mode in which Weft computes: round to nearest, subnormals kept, no exception
// traps. Sums, and costs by which all ranks make the same choice, must not depend on the mode of the caller's thread.
#pragma once
#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace weft::internal {

// Sets the mode for its lifetime if the thread has another one. Reentrant.
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
    static constexpr Word flags = 0x3f;  // of exceptions that have occurred: not part of the mode
    // A trial sum that tells the modes apart would be a little cheaper. But it raises exceptions, which the program may
    // trap: it would get SIGFPE.
    static bool is_ours() { return (read() & ~flags) == ours; }
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

}  // namespace weft::internal
