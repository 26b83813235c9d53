// pattern_test.cpp: the benchmarks' inputs have exact results, and a wrong buffer is counted as wrong.
#include "perf/pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "tests/catch.hpp"

using namespace perf;

namespace {

uint64_t bits_at(const Period& period, size_t index, size_t bytes) {
    uint64_t bits = 0;
    std::memcpy(&bits, period.data() + index * bytes, bytes);
    return bits;
}

float float_at(const Period& period, size_t index) {
    float value;
    std::memcpy(&value, period.data() + index * sizeof value, sizeof value);
    return value;
}

}  // namespace

TEST_CASE("a value has the bits that its type gives it") {
    auto bits = [](const char* type, double value) { return encode_floating(*find_element(type), value); };
    CHECK(bits("half", 1) == 0x3c00);
    CHECK(bits("half", -2048) == 0xe800);
    CHECK(bits("float", 1.5) == 0x3fc00000);
    CHECK(bits("double", -1) == 0xbff0000000000000);
    CHECK(bits("bfloat16", 1) == 0x3f80);
    CHECK(bits("bfloat16", -255) == 0xc37f);
    CHECK(bits("f8e4m3", 1) == 0x38);
    CHECK(bits("f8e4m3", 448) == 0x7e);
    CHECK(bits("f8e5m2", -1) == 0xbc);
    CHECK(bits("f8e5m2", 57344) == 0x7b);
    CHECK(bits("f8e5m2", 0) == 0);
    CHECK(encode_integer(*find_element("int8"), uint64_t(-1)) == 0xff);
    CHECK(encode_integer(*find_element("uint32"), 0x1234567890) == 0x34567890);
}

TEST_CASE("types are found by nccl-tests' names and by others'") {
    CHECK(find_element("bf16") == find_element("bfloat16"));
    CHECK(find_element("fp8_e4m3")->type == weftFloat8e4m3);
    CHECK(find_element("flot") == nullptr);
    for (const Element& element : elements()) CHECK(int(element.type) == &element - elements().data());
}

TEST_CASE("data that are only moved are bits of all kinds, other ones on each rank and with each seed") {
    const Pattern pattern(*find_element("half"), no_reduction, 4, 5);
    std::set<uint64_t> values;
    for (size_t i = 0; i < Pattern::period_elements; ++i) values.insert(bits_at(pattern.bits(0), i, 2));
    CHECK(values.size() > Pattern::period_elements * 9 / 10);
    CHECK(std::any_of(values.begin(), values.end(), [](uint64_t bits) { return (bits & 0x7c00) == 0x7c00; }));
    CHECK(pattern.bits(0) != pattern.bits(1));
    CHECK(pattern.bits(0) != Pattern(*find_element("half"), no_reduction, 4, 6).bits(0));
}

TEST_CASE("every sum of fp32 inputs, in any order, is the one expected") {
    const int ranks = GENERATE(1, 2, 3, 7, 8, 64, 300);
    const Pattern pattern(*find_element("float"), *find_reduction("sum"), ranks, 5);
    std::vector<Period> inputs;
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(pattern.input(rank));
    const Period expected = pattern.reduced();
    for (size_t i = 0; i < Pattern::period_elements; i += 7) {
        float up = 0, down = 0;
        for (int rank = 0; rank < ranks; ++rank) up += float_at(inputs[size_t(rank)], i);
        for (int rank = ranks - 1; rank >= 0; --rank) down += float_at(inputs[size_t(rank)], i);
        REQUIRE(up == float_at(expected, i));
        REQUIRE(down == up);
    }
}

TEST_CASE("inputs and results of every type and reduction exist in the type, at any rank count") {
    // encode_floating() asserts that the value is exact.
    const int ranks = GENERATE(1, 2, 3, 8, 17, 49, 300);
    for (const Element& element : elements())
        for (const Reduction& reduction : reductions()) {
            if (!serves(reduction, element)) continue;
            const Pattern pattern(element, reduction, ranks, 1);
            CHECK(pattern.input(ranks - 1).size() == Pattern::period_elements * element.bytes);
            CHECK(pattern.reduced().size() == Pattern::period_elements * element.bytes);
        }
}

TEST_CASE("data differ from rank to rank, from seed to seed and from place to place") {
    for (const Element& element : elements())
        for (const Reduction& reduction : reductions()) {
            if (!serves(reduction, element)) continue;
            INFO(element.name << " " << reduction.name);
            const Pattern pattern(element, reduction, 4, 1), other(element, reduction, 4, 2);
            CHECK(pattern.input(0) != pattern.input(1));
            CHECK(pattern.input(0) != other.input(0));
            const Period result = pattern.reduced();
            std::set<uint64_t> values;
            for (size_t i = 0; i < Pattern::period_elements; ++i) values.insert(bits_at(result, i, element.bytes));
            CHECK(values.size() > 2);
        }
}

TEST_CASE("an average of integers truncates toward zero") {
    const Element& element = *find_element("int32");
    const Pattern pattern(element, *find_reduction("avg"), 3, 1);
    const Period a = pattern.input(0), b = pattern.input(1), c = pattern.input(2), result = pattern.reduced();
    bool truncated_below_zero = false;
    for (size_t i = 0; i < Pattern::period_elements; ++i) {
        auto value = [&](const Period& period) { return int64_t(int32_t(bits_at(period, i, 4))); };
        const int64_t sum = value(a) + value(b) + value(c);
        REQUIRE(value(result) == sum / 3);
        truncated_below_zero |= sum < 0 && sum % 3 != 0;
    }
    CHECK(truncated_below_zero);
}

TEST_CASE("each element that differs is counted, wherever it lies") {
    const size_t bytes = GENERATE(2, 3);  // periods, about
    const Element& element = *find_element("half");
    const Period period = Pattern(element, *find_reduction("sum"), 2, 1).reduced();
    std::vector<std::byte> buffer(period.size() * bytes + 10 * element.bytes);
    fill(buffer.data(), buffer.size(), period);
    CHECK(count_wrong(buffer.data(), buffer.size(), period, element.bytes) == 0);
    buffer.front() ^= std::byte(1);
    buffer[period.size() + 1] ^= std::byte(0x80);
    buffer.back() ^= std::byte(1);
    CHECK(count_wrong(buffer.data(), buffer.size(), period, element.bytes) == 3);
    // Both bytes of one element are one wrong element.
    buffer[buffer.size() - 2] ^= std::byte(1);
    CHECK(count_wrong(buffer.data(), buffer.size(), period, element.bytes) == 3);
}

TEST_CASE("data moved by a power of two, or by a share of one, are wrong nearly everywhere") {
    const Element& element = *find_element("float");
    const Period period = Pattern(element, *find_reduction("sum"), 4, 1).reduced();
    std::vector<std::byte> buffer(1 << 20);
    fill(buffer.data(), buffer.size(), period);
    for (size_t moved : {64, 4096, 65536, 1 << 18, (1 << 18) / 3 * 4}) {
        const size_t length = buffer.size() - moved;
        CHECK(count_wrong(buffer.data() + moved, length, period, 4) > length / 4 * 9 / 10);
    }
}
