// arithmetic_test.cpp: the scalar arithmetic against tests/reference: for small floats a table of every number that a format
// has, in double, and a search for the nearest.
#include "src/base/arithmetic.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "src/base/datatype.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/reference/plain.hpp"

namespace weft::internal {
namespace {

using reference::Format;
using reference::format;

template <weftDataType_t t>
struct Type {
    static constexpr weftDataType_t type = t;
};

template <weftDataType_t type>
void check_rounding(float input, const std::vector<double>& list) {
    for (const float value : {input, -input}) {
        const uint32_t expected = format<type>.nearest(double(value), list);
        const uint32_t got = Arithmetic<type>::round(value);
        if (got != expected) {
            CAPTURE(value, expected, got);
            FAIL_CHECK("rounded to another number");
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("every pattern of a small float widens to the number that its format defines", "[arithmetic]",
                   Type<weftFloat16>, Type<weftBfloat16>, Type<weftFloat8e4m3>, Type<weftFloat8e5m2>) {
    using Arithmetic = Arithmetic<TestType::type>;
    constexpr Format definition = format<TestType::type>;
    for (uint32_t pattern = 0; pattern < 2 * definition.sign(); ++pattern) {
        const double expected = definition.value(pattern);
        const float got = Arithmetic::widen(typename Arithmetic::Element(pattern));
        const bool same =
            std::isnan(expected) ? std::isnan(got) : got == expected && std::signbit(got) == std::signbit(expected);
        if (!same) {
            CAPTURE(pattern, expected, got);
            FAIL_CHECK("widened to another number");
        }
        if (!std::isnan(expected) && Arithmetic::round(got) != pattern) {
            CAPTURE(pattern, got);
            FAIL_CHECK("did not come back");
        }
    }
}

TEMPLATE_TEST_CASE("rounding takes the nearest number, the even one of two, and saturates or overflows at the end",
                   "[arithmetic]", Type<weftFloat16>, Type<weftBfloat16>, Type<weftFloat8e4m3>, Type<weftFloat8e5m2>) {
    constexpr weftDataType_t type = TestType::type;
    const std::vector<double> list = format<type>.magnitudes();
    // Around every number, and around the middle between it and the next, or what would be the next.
    for (size_t i = 0; i < list.size(); ++i) {
        const double next = i + 1 < list.size() ? list[i + 1] : 2 * list[i] - list[i - 1];
        for (const double point : {list[i], (list[i] + next) / 2, next}) {
            const auto here = float(point);
            if (!std::isfinite(here)) continue;  // bf16's next is beyond fp32
            check_rounding<type>(here, list);
            check_rounding<type>(std::nextafter(here, 0.0f), list);
            if (std::isfinite(std::nextafter(here, INFINITY)))
                check_rounding<type>(std::nextafter(here, INFINITY), list);
        }
    }
    // Every exponent of fp32, its subnormals and its end included.
    for (uint32_t upper = 0; upper < 0x7f80; ++upper) {
        for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
            check_rounding<type>(__builtin_bit_cast(float, upper << 16 | lower), list);
        }
    }
    check_rounding<type>(INFINITY, list);
}

TEMPLATE_TEST_CASE("a NaN stays one whatever its payload", "[arithmetic]", Type<weftFloat16>, Type<weftBfloat16>,
                   Type<weftFloat8e4m3>, Type<weftFloat8e5m2>) {
    using Arithmetic = Arithmetic<TestType::type>;
    for (const uint32_t payload : {1u, 0x7fffu, 0x8000u, 0x3fffffu, 0x400000u, 0x7fffffu}) {
        for (const uint32_t sign : {0u, 0x80000000u}) {
            const uint32_t rounded = Arithmetic::round(__builtin_bit_cast(float, sign | 0x7f800000u | payload));
            CHECK(std::isnan(format<TestType::type>.value(rounded)));
        }
    }
}

// The rule is one template for single numbers and for vectors; these are the vectors of a 128-bit register.
TEMPLATE_TEST_CASE("vectors of small floats are widened and rounded to the bits of single numbers", "[arithmetic]",
                   Float16Format, Float8e4m3Format, Float8e5m2Format) {
    using Format = TestType;
    using Floats = float __attribute__((vector_size(16)));
    using Ints = int32_t __attribute__((vector_size(16)));
    using Words = uint32_t __attribute__((vector_size(16)));
    // Every pattern, below bits that the format does not have.
    for (uint32_t pattern = 0; pattern < 1u << Format::bits; ++pattern) {
        const Words words = Words{0, 0xffffffff, 0x5a5a5a5a, 1u << 31} << Format::bits % 32 | pattern;
        const auto wide = Format::template widen<Floats, Ints, Words>(words);
        const float single = Format::widen(pattern);
        for (int lane = 0; lane < 4; ++lane)
            if (memcmp(&single, (const float*)&wide + lane, sizeof single) != 0)
                FAIL("pattern " << pattern << " in lane " << lane);
    }
    // Every upper half of an fp32 with lower halves around ties, and with random ones: 2^24 numbers.
    std::mt19937 random(test::seed());
    for (uint32_t upper = 0; upper < 0x10000; ++upper)
        for (uint32_t sample = 0; sample < (test::small() ? 8 : 256); sample += 4) {
            Words words{0u, 0x7fffu, 0x8000u, 0x8001u};
            for (int lane = 0; sample > 0 && lane < 4; ++lane) words[lane] = random() & 0xffff;
            words |= upper << 16;
            const Words rounded = Format::template round<Floats, Ints, Words>(__builtin_bit_cast(Floats, words));
            for (int lane = 0; lane < 4; ++lane)
                if (rounded[lane] != Format::round(__builtin_bit_cast(float, uint32_t(words[lane]))))
                    FAIL("fp32 pattern " << words[lane]);
        }
}

TEST_CASE("fp8 saturates: e4m3 even from infinity, e5m2 from finite values only", "[arithmetic]") {
    CHECK(Arithmetic<weftFloat8e4m3>::round(1e9f) == 0x7e);
    CHECK(Arithmetic<weftFloat8e4m3>::round(-INFINITY) == 0xfe);
    CHECK(Arithmetic<weftFloat8e4m3>::widen(0x7e) == 448);
    CHECK(Arithmetic<weftFloat8e5m2>::round(1e9f) == 0x7b);
    CHECK(Arithmetic<weftFloat8e5m2>::round(-INFINITY) == 0xfc);
    CHECK(Arithmetic<weftFloat8e5m2>::widen(0x7b) == 57344);
}

TEST_CASE("integers wrap", "[arithmetic]") {
    CHECK(combine<weftSum>(int8_t(127), int8_t(1)) == -128);
    CHECK(combine<weftProd>(uint8_t(16), uint8_t(17)) == 16);
    CHECK(combine<weftSum>(INT32_MAX, 1) == INT32_MIN);
    CHECK(combine<weftProd>(INT32_MIN, int32_t(-1)) == INT32_MIN);
    CHECK(combine<weftSum>(UINT32_MAX, 2u) == 1u);
    CHECK(combine<weftSum>(INT64_MAX, int64_t(1)) == INT64_MIN);
    CHECK(combine<weftProd>(INT64_MIN, int64_t(-1)) == INT64_MIN);
    CHECK(combine<weftSum>(UINT64_MAX, uint64_t(2)) == 1u);
}

TEST_CASE("integer averages truncate toward zero, also by divisors that the type cannot hold", "[arithmetic]") {
    CHECK(average(int8_t(-7), 2) == -3);
    CHECK(average(int8_t(-128), 1024) == 0);
    CHECK(average(uint8_t(255), 2) == 127);
    CHECK(average(int32_t(-7), 4) == -1);
    CHECK(average(INT32_MIN, 1) == INT32_MIN);
    CHECK(average(int32_t(7), UINT32_MAX) == 0);
    CHECK(average(INT64_MIN, 3) == INT64_MIN / 3);
    CHECK(average(UINT64_MAX, 3) == UINT64_MAX / 3);
}

TEMPLATE_TEST_CASE("min and max propagate NaN and put -0 below +0, whichever comes first", "[arithmetic]", float,
                   double) {
    const TestType nan = NAN, infinity = INFINITY;
    const volatile TestType unfolded = 0;  // the compiler and the processor may differ about a sign bit's value
    const TestType zero = unfolded;
    for (const TestType value : {TestType(1), -infinity, infinity, nan}) {
        CHECK(std::isnan(combine<weftMax>(value, nan)));
        CHECK(std::isnan(combine<weftMax>(nan, value)));
        CHECK(std::isnan(combine<weftMin>(value, nan)));
        CHECK(std::isnan(combine<weftMin>(nan, value)));
    }
    CHECK(!std::signbit(combine<weftMax>(zero, -zero)));
    CHECK(!std::signbit(combine<weftMax>(-zero, zero)));
    CHECK(std::signbit(combine<weftMin>(zero, -zero)));
    CHECK(std::signbit(combine<weftMin>(-zero, zero)));
    CHECK(combine<weftMax>(TestType(1), TestType(2)) == 2);
    CHECK(combine<weftMin>(-infinity, TestType(2)) == -infinity);
}

TEMPLATE_TEST_CASE("the plain arithmetic of the reference gives the same bits", "[arithmetic]", Type<weftInt8>,
                   Type<weftUint8>, Type<weftInt32>, Type<weftUint32>, Type<weftInt64>, Type<weftUint64>,
                   Type<weftFloat16>, Type<weftFloat32>, Type<weftFloat64>, Type<weftBfloat16>, Type<weftFloat8e4m3>,
                   Type<weftFloat8e5m2>) {
    constexpr weftDataType_t type = TestType::type;
    using A = Arithmetic<type>;
    using Plain = reference::Plain<type>;
    std::mt19937_64 random(test::seed());
    const auto draw = [&] {
        typename A::Element element;
        const uint64_t bits = random();
        memcpy(&element, &bits, sizeof element);
        return element;
    };
    // NaN has many patterns; which comes out is open.
    const auto same = [](auto left, auto right) {
        return Plain::wide(left) != Plain::wide(left) ? Plain::wide(right) != Plain::wide(right) : left == right;
    };
    for (int i = 0; i < 20'000; ++i) {
        const auto left = draw(), right = i % 8 ? draw() : left;
        for (int number = 0; number < weftNumOps; ++number)
            with_reduction(weftRedOp_t(number), [&](auto op) {
                if constexpr (serves(op(), type)) {
                    const auto fast = A::round(combine<op()>(A::widen(left), A::widen(right)));
                    const auto plain = Plain::narrow(reference::combined<op()>(Plain::wide(left), Plain::wide(right)));
                    if (!same(fast, plain)) {
                        CAPTURE(number, left, right, fast, plain);
                        FAIL_CHECK("other bits");
                    }
                }
            });
        if constexpr (is_integer(type)) {
            const auto divisor = uint32_t(1 + random() % (i % 2 ? 1024 : UINT32_MAX));
            CHECK(average(left, divisor) == reference::divided(left, divisor));
        }
    }
}

TEST_CASE("each number of a type or reduction reaches its own template", "[arithmetic]") {
    for (int type = 0; type < weftNumTypes; ++type) {
        CHECK(with_datatype(weftDataType_t(type), [](auto t) { return int(t()); }) == type);
        CHECK(with_datatype(weftDataType_t(type), [](auto t) { return sizeof(typename Arithmetic<t()>::Element); }) ==
              size_of(weftDataType_t(type)));
    }
    for (int op = 0; op < weftNumOps; ++op) {
        CHECK(with_reduction(weftRedOp_t(op), [](auto o) { return int(o()); }) == op);
    }
}

}  // namespace weft::internal
