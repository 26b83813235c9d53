// cpu_kernel_data.hpp: shared by the tests of the CPU kernels. Random elements with awkward ones among them, buffers
// that notice a stray write or read, and equality that takes any NaN for any other.
#pragma once
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "src/base/arithmetic.hpp"
#include "src/base/datatype.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {

#define WEFT_PRINT_SEED() INFO("seed " << weft::internal::test::seed())

// For TEMPLATE_TEST_CASE, which takes types only.
template <weftDataType_t t>
struct Type {
    static constexpr weftDataType_t type = t;
};
#define WEFT_ALL_TYPES                                                                     \
    weft::internal::test::Type<weftInt8>, weft::internal::test::Type<weftUint8>,           \
        weft::internal::test::Type<weftInt32>, weft::internal::test::Type<weftUint32>,     \
        weft::internal::test::Type<weftInt64>, weft::internal::test::Type<weftUint64>,     \
        weft::internal::test::Type<weftFloat16>, weft::internal::test::Type<weftFloat32>,  \
        weft::internal::test::Type<weftFloat64>, weft::internal::test::Type<weftBfloat16>, \
        weft::internal::test::Type<weftFloat8e4m3>, weft::internal::test::Type<weftFloat8e5m2>

// One of the built-in reductions that serve the type.
inline weftRedOp_t random_reduction(weftDataType_t type, std::mt19937& random) {
    for (;;)
        if (const auto op = weftRedOp_t(random() % weftNumOps); serves(op, type)) return op;
}

template <weftDataType_t type>
using Element = typename Arithmetic<type>::Element;
template <weftDataType_t type>
using Accumulator = typename Arithmetic<type>::Accumulator;

// Mostly small numbers, so that long sums keep their meaning; some of any size. Now and then NaN, infinity, the
// largest, subnormals and zeros of either sign, if the type has them.
template <weftDataType_t type>
Element<type> random_element(std::mt19937& random) {
    using A = Accumulator<type>;
    const unsigned kind = random() % 256;
    if constexpr (std::is_integral_v<A>) {
        const auto bits = A(uint64_t(random()) << 32 | random());
        return kind < 32 ? bits : A(bits % A(100));
    } else {
        const A sign = random() % 2 ? A(1) : A(-1);
        const auto mantissa = A(1) + A(random() % 4096) / A(4096);
        A value = sign * std::ldexp(mantissa, int(random() % 6) - 3);
        if (kind == 0 && random() % 4 == 0) value = A(NAN);
        if (kind == 1 && random() % 4 == 0) value = sign * A(INFINITY);
        if (kind >= 2 && kind < 18) value = sign * A(0);
        if (kind >= 18 && kind < 34) value = sign * std::ldexp(mantissa, int(random() % 300) - 150);
        if constexpr (sizeof(Element<type>) < sizeof(A)) {
            // Any pattern but the larger half of the range, where nearly all of fp8's NaNs and overflows lie.
            if (kind >= 34 && kind < 98) {
                auto bits = Element<type>(random());
                bits &= Element<type>(~(Element<type>(1) << (8 * sizeof bits - 2)));
                return bits;
            }
        } else if (kind >= 34 && kind < 42) {
            value = sign * std::numeric_limits<A>::denorm_min() * A(random() % 1000);
        }
        return Arithmetic<type>::round(value);
    }
}

template <weftDataType_t type>
bool is_nan(Element<type> element) {
    const auto value = Arithmetic<type>::widen(element);
    return value != value;
}

// The first element that differs, or `count`. Equal bits, or both NaN.
template <weftDataType_t type>
size_t first_difference(const void* got, const Element<type>* expected, size_t count) {
    if (count == 0 || std::memcmp(got, expected, count * sizeof(Element<type>)) == 0) return count;
    for (size_t i = 0; i < count; ++i) {
        Element<type> element;
        std::memcpy(&element, static_cast<const char*>(got) + i * sizeof element, sizeof element);
        const bool same = std::memcmp(&element, expected + i, sizeof element) == 0;
        if (!same && !(is_nan<type>(element) && is_nan<type>(expected[i]))) return i;
    }
    return count;
}

// A buffer on a line, at an offset, between bytes that must stay as they are.
class Fenced {
  public:
    explicit Fenced(size_t most_bytes) : storage_(most_bytes + 4 * margin) {}

    // Room for `bytes`, all bytes fresh.
    char* prepare(size_t offset, size_t bytes) {
        begin_ = aligned() + margin + offset;
        end_ = begin_ + bytes;
        std::memset(begin_ - margin, mark, bytes + 2 * margin);
        return begin_;
    }
    bool intact() const {
        for (size_t i = 1; i <= margin; ++i) {
            if (begin_[-ptrdiff_t(i)] != mark || end_[i - 1] != mark) return false;
        }
        return true;
    }

  private:
    static constexpr size_t margin = 128;  // also the most that an offset may be
    static constexpr char mark = char(0xa5);
    char* aligned() {
        return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(storage_.data()) + 63) & ~uintptr_t(63));
    }
    std::vector<char> storage_;
    char* begin_ = nullptr;
    char* end_ = nullptr;
};

// Memory that ends where the next byte faults.
class Brink {
  public:
    explicit Brink(size_t bytes) : bytes_((bytes + page - 1) / page * page) {
        base_ = static_cast<char*>(
            mmap(nullptr, bytes_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        REQUIRE(base_ != MAP_FAILED);
        REQUIRE(mprotect(base_ + bytes_, page, PROT_NONE) == 0);
    }
    Brink(Brink&& other) noexcept : bytes_(other.bytes_), base_(std::exchange(other.base_, nullptr)) {}
    ~Brink() {
        if (base_) munmap(base_, bytes_ + page);
    }
    char* last(size_t bytes) const { return base_ + bytes_ - bytes; }

  private:
    static constexpr size_t page = 65536;  // a multiple of every page size in use
    size_t bytes_;
    char* base_;
};

}  // namespace weft::internal::test
