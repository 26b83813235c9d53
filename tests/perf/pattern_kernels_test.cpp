// pattern_kernels_test.cpp: the benchmarks' kernels against what the host does with the same periods: the bodies, one
// thread after the other.
#include "perf/pattern_kernels.hpp"

#include <random>

#include "perf/pattern.hpp"
#include "tests/catch.hpp"

using namespace perf;

namespace {

constexpr size_t margin = 64;  // around the buffer

struct Patterned {
    Patterned(size_t bytes, const Period& period, uint32_t element_bytes)
        : memory(margin + bytes + margin, std::byte(0x5a)) {
        arguments = {memory.data() + margin, bytes, period.data(), period.size(), element_bytes, &wrong};
    }
    // All threads of a grid, in turn.
    template <class Body>
    void run(uint32_t blocks, uint32_t threads, Body body) {
        for (uint32_t block = 0; block < blocks; ++block)
            for (uint32_t thread = 0; thread < threads; ++thread) body({thread, threads, block, blocks}, arguments);
    }
    std::vector<std::byte> memory;
    uint64_t wrong = 0;
    PatternArguments arguments;
};

}  // namespace

TEST_CASE("kernels write and count the same as the host, and nothing beside it") {
    std::mt19937 random(7);
    for (const Element& element : elements()) {
        const Period whole = Pattern(element, no_reduction, 2, 3).bits(1), guard(64, std::byte(0xa5));
        for (const Period* period : {&whole, &guard})
            for (const size_t elements :
                 {size_t(1), size_t(5), Pattern::period_elements, 3 * Pattern::period_elements + 17})
                for (const auto& [blocks, threads] : {std::pair(1u, 1u), std::pair(2u, 32u), std::pair(7u, 512u)}) {
                    const size_t bytes = elements * element.bytes;
                    INFO(element.name << ' ' << elements << ' ' << blocks << 'x' << threads << ' ' << period->size());
                    Patterned device(bytes, *period, uint32_t(element.bytes));
                    device.run(blocks, threads, fill_pattern);
                    std::vector<std::byte> expected(margin + bytes + margin, std::byte(0x5a));
                    fill(expected.data() + margin, bytes, *period);
                    REQUIRE(device.memory == expected);
                    device.run(blocks, threads, count_wrong_elements);
                    REQUIRE(device.wrong == 0);
                    // The first, the last, and some between; a bit, or all of them.
                    for (int i = 0; i < 4; ++i) {
                        const size_t at = i == 0 ? 0 : i == 1 ? bytes - 1 : random() % bytes;
                        device.memory[margin + at] ^= std::byte(i % 2 ? 1 << random() % 8 : 0xff);
                    }
                    const size_t wrong = count_wrong(device.memory.data() + margin, bytes, *period, element.bytes);
                    device.run(blocks, threads, count_wrong_elements);
                    REQUIRE(device.wrong == wrong);
                    // It adds to what was counted before.
                    device.run(blocks, threads, count_wrong_elements);
                    REQUIRE(device.wrong == 2 * wrong);
                }
    }
}
