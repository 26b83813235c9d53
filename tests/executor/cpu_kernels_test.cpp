// cpu_kernels_test.cpp: every reduction of every set of CPU kernels that this machine can run, bit for bit against the scalar
// truth.
#include "src/kernels/cpu_kernels.hpp"

#include <string>

#include "tests/executor/cpu_kernel_data.hpp"

namespace weft::internal {
namespace {

using test::Accumulator;
using test::Element;

constexpr size_t most_elements = 4097;
constexpr size_t counts[] = {0, 1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 1000, most_elements};

template <weftDataType_t type>
Element<type> element_at(const void* array, size_t i) {
    Element<type> element;
    std::memcpy(&element, static_cast<const char*>(array) + i * sizeof element, sizeof element);
    return element;
}

template <weftDataType_t type>
std::vector<Element<type>> truth(weftRedOp_t op, const std::vector<const void*>& sources, size_t count,
                                 uint32_t average_of) {
    std::vector<Element<type>> result(count);
    with_reduction(op, [&](auto constant) {
        for (size_t i = 0; i < count; ++i) {
            auto value = Arithmetic<type>::widen(element_at<type>(sources[0], i));
            for (size_t j = 1; j < sources.size(); ++j) {
                value =
                    combine<decltype(constant)::value>(value, Arithmetic<type>::widen(element_at<type>(sources[j], i)));
            }
            if (average_of) value = average(value, average_of);
            result[i] = Arithmetic<type>::round(value);
        }
    });
    return result;
}

uint32_t divisor_of(weftRedOp_t op, size_t sources) { return op == weftAvg ? uint32_t(sources) : 0; }

// Sources that start at odd addresses: number j lies j mod 8 times `skew` bytes behind a line.
template <weftDataType_t type>
class Sources {
  public:
    explicit Sources(int count) {
        std::mt19937 random(test::seed());
        for (int j = 0; j < count; ++j) {
            std::vector<Element<type>> data(most_elements + 128 / sizeof(Element<type>));
            for (auto& element : data) element = test::random_element<type>(random);
            data_.push_back(std::move(data));
        }
    }
    std::vector<const void*> at(size_t skew, int count) const {
        std::vector<const void*> pointers;
        for (int j = 0; j < count; ++j) {
            pointers.push_back(reinterpret_cast<const char*>(data_[size_t(j)].data()) + size_t(j % 8) * skew);
        }
        return pointers;
    }

  private:
    std::vector<std::vector<Element<type>>> data_;
};

}  // namespace

TEMPLATE_TEST_CASE(
    "every set of CPU kernels reduces to the bits of the scalar truth, at any alignment, and writes nothing else",
    "[cpu_kernels]", WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    constexpr size_t bytes = sizeof(Element<type>);
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    const Sources<type> data(64);
    std::vector<test::Fenced> buffers(3, test::Fenced(most_elements * bytes));
    // Bytes by which sources and destinations are off a line: not at all, by an element or so, by a byte.
    for (const size_t skew : {size_t(0), bytes, size_t(1)}) {
        for (int op = 0; op < weftNumOps; ++op) {
            if (!serves(weftRedOp_t(op), type)) continue;
            for (const int sources : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 64}) {
                const std::vector<const void*> from = data.at(skew, sources);
                const uint32_t divisor = divisor_of(weftRedOp_t(op), from.size());
                const auto expected = truth<type>(weftRedOp_t(op), from, most_elements, divisor);
                for (const CpuKernels* set : all_cpu_kernels()) {
                    for (const size_t count : counts) {
                        if (test::small() && random() % 3 != 0) continue;
                        for (const int destinations : {1, 2, 3}) {
                            for (const int streamed : {0, 1, INT_MAX}) {
                                void* to[3];
                                for (int j = 0; j < destinations; ++j) {
                                    to[j] = buffers[size_t(j)].prepare(size_t(j + 1) * skew, count * bytes);
                                }
                                set->reduce[type][op]({to, destinations, from.data(), sources, count, divisor,
                                                       streamed ? Stores::streaming : Stores::ordinary, streamed});
                                for (int j = 0; j < destinations; ++j) {
                                    const size_t difference =
                                        test::first_difference<type>(to[j], expected.data(), count);
                                    if (difference != count || !buffers[size_t(j)].intact()) {
                                        CAPTURE(set->isa, skew, op, sources, count, destinations, streamed, j,
                                                difference);
                                        FAIL("differs, or wrote elsewhere");
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    SUCCEED();
}

TEST_CASE("every set of CPU kernels has a loop for every reduction that serves a type, and none for others",
          "[cpu_kernels]") {
    for (const CpuKernels* set : all_cpu_kernels())
        for (int type = 0; type < weftNumTypes; ++type)
            for (int op = 0; op < weftNumOps; ++op) {
                const bool there = serves(weftRedOp_t(op), weftDataType_t(type));
                CAPTURE(set->isa, type, op);
                CHECK((set->reduce[type][op] != nullptr) == there);
                CHECK((set->fused[type][op] != nullptr) == there);
            }
}

TEMPLATE_TEST_CASE("a reduction in place gives what it gives elsewhere", "[cpu_kernels]", WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    constexpr size_t bytes = sizeof(Element<type>);
    WEFT_PRINT_SEED();
    const Sources<type> data(9);
    const std::vector<const void*> from = data.at(0, 9);
    std::vector<test::Fenced> copies(9, test::Fenced(most_elements * bytes));
    for (int op = 0; op < weftNumOps; ++op) {
        if (!serves(weftRedOp_t(op), type)) continue;
        for (const int sources : {1, 2, 3, 4, 8, 9}) {
            const uint32_t divisor = divisor_of(weftRedOp_t(op), size_t(sources));
            const auto expected =
                truth<type>(weftRedOp_t(op), {from.begin(), from.begin() + sources}, most_elements, divisor);
            for (const CpuKernels* set : all_cpu_kernels()) {
                for (const size_t count : counts) {
                    for (const Stores stores : {Stores::ordinary, Stores::streaming}) {
                        for (const int first : {0, sources - 1}) {
                            std::vector<void*> all;
                            for (int j = 0; j < sources; ++j) {
                                all.push_back(copies[size_t(j)].prepare(bytes * size_t(j), count * bytes));
                                std::memcpy(all.back(), from[size_t(j)], count * bytes);
                            }
                            void* const to[] = {all[size_t(first)], all[size_t(sources) / 2]};
                            set->reduce[type][op]({to, 2, all.data(), sources, count, divisor, stores});
                            for (void* result : to) {
                                if (test::first_difference<type>(result, expected.data(), count) != count) {
                                    CAPTURE(set->isa, op, sources, count, first);
                                    FAIL("differs");
                                }
                            }
                        }
                    }
                }
            }
        }
    }
    SUCCEED();
}

TEMPLATE_TEST_CASE("a contribution to an average counts its share, and the complete sum is divided by the rest",
                   "[cpu_kernels]", test::Type<weftFloat16>, test::Type<weftFloat32>, test::Type<weftFloat64>,
                   test::Type<weftBfloat16>, test::Type<weftFloat8e4m3>, test::Type<weftFloat8e5m2>) {
    constexpr weftDataType_t type = TestType::type;
    using A = Arithmetic<type>;
    WEFT_PRINT_SEED();
    const Sources<type> data(8);
    for (const int sources : {1, 2, 3, 8})
        for (const int contribution : {ReduceJob::every_source, ReduceJob::no_source, 0, 1})
            for (const uint32_t average_of : {0u, 7u})
                for (const size_t count : counts) {
                    if (contribution >= sources || count > 200) continue;
                    const auto from = data.at(1, sources);
                    std::vector<Element<type>> expected(count), result(count);
                    for (size_t i = 0; i < count; ++i) {
                        Accumulator<type> sum = 0;
                        for (int j = 0; j < sources; ++j) {
                            Accumulator<type> value = A::widen(element_at<type>(from[size_t(j)], i));
                            if (contribution == ReduceJob::every_source) value /= 8;
                            if (contribution == j) value = A::widen(A::round(value / 8));
                            sum = j == 0 ? value : sum + value;
                        }
                        if (average_of) sum /= Accumulator<type>(0.875);
                        expected[i] = A::round(sum);
                    }
                    void* const to[] = {result.data()};
                    ReduceJob job{to, 1, from.data(), sources, count, average_of, Stores::ordinary};
                    job.share_of = 8;
                    job.contribution = contribution;
                    for (const CpuKernels* set : all_cpu_kernels()) {
                        set->reduce[type][weftAvg](job);
                        CAPTURE(set->isa, sources, contribution, average_of, count);
                        CHECK(test::first_difference<type>(result.data(), expected.data(), count) == count);
                    }
                }
}

TEMPLATE_TEST_CASE("a thousand sources are added in order", "[cpu_kernels]", WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    WEFT_PRINT_SEED();
    const Sources<type> data(64);
    std::vector<const void*> from;
    while (from.size() < 1024) {
        for (const void* source : data.at(1, 64)) from.push_back(source);
    }
    for (const size_t count : {size_t(1), size_t(300)}) {
        const auto expected = truth<type>(weftAvg, from, count, 1024);
        std::vector<Element<type>> result(count);
        void* const to[] = {result.data()};
        for (const CpuKernels* set : all_cpu_kernels()) {
            set->reduce[type][weftAvg]({to, 1, from.data(), 1024, count, 1024, Stores::ordinary});
            CAPTURE(set->isa, count);
            CHECK(test::first_difference<type>(result.data(), expected.data(), count) == count);
        }
    }
}

TEMPLATE_TEST_CASE("a reduction reads nothing behind the last element", "[cpu_kernels]", WEFT_ALL_TYPES) {
    constexpr weftDataType_t type = TestType::type;
    constexpr size_t bytes = sizeof(Element<type>);
    std::vector<test::Brink> sources;
    for (int j = 0; j < 5; ++j) sources.emplace_back(300 * bytes);
    const test::Brink target(300 * bytes);
    for (const CpuKernels* set : all_cpu_kernels()) {
        for (size_t count = 0; count < 300; ++count) {
            for (const int source_count : {1, 2, 5}) {
                const void* from[5];
                for (size_t j = 0; j < 5; ++j) from[j] = sources[j].last(count * bytes);
                void* const to[] = {target.last(count * bytes)};
                set->reduce[type][weftSum]({to, 1, from, source_count, count, 0, Stores::streaming});
                set->scale[type](to[0], from[0], count, sources[0].last(bytes));
            }
        }
    }
    SUCCEED("nothing faulted");
}

// All pairs of fp8; of the 16-bit floats every number with a hundred others.
TEMPLATE_TEST_CASE("small floats are combined and rounded right for all of their numbers", "[cpu_kernels]",
                   test::Type<weftFloat16>, test::Type<weftBfloat16>, test::Type<weftFloat8e4m3>,
                   test::Type<weftFloat8e5m2>) {
    constexpr weftDataType_t type = TestType::type;
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    std::vector<Element<type>> left(65536), right(65536), result(65536);
    for (size_t i = 0; i < left.size(); ++i) left[i] = Element<type>(i);
    for (int round = 0; round < (sizeof(Element<type>) == 1 ? 1 : test::small() ? 10 : 100); ++round) {
        for (size_t i = 0; i < right.size(); ++i) right[i] = Element<type>(sizeof right[i] == 1 ? i >> 8 : random());
        const std::vector<const void*> from = {left.data(), right.data()};
        void* const to[] = {result.data()};
        for (int op = 0; op < weftNumOps; ++op) {
            if (!serves(weftRedOp_t(op), type)) continue;
            const auto expected = truth<type>(weftRedOp_t(op), from, left.size(), divisor_of(weftRedOp_t(op), 2));
            for (const CpuKernels* set : all_cpu_kernels()) {
                set->reduce[type][op](
                    {to, 1, from.data(), 2, left.size(), divisor_of(weftRedOp_t(op), 2), Stores::ordinary});
                const size_t difference = test::first_difference<type>(result.data(), expected.data(), left.size());
                if (difference != left.size()) {
                    CAPTURE(set->isa, op, difference, left[difference], right[difference], result[difference],
                            expected[difference]);
                    FAIL("differs");
                }
            }
        }
    }
    SUCCEED();
}

TEMPLATE_TEST_CASE("integer averages are exact for all divisors", "[cpu_kernels]", test::Type<weftInt8>,
                   test::Type<weftUint8>, test::Type<weftInt32>, test::Type<weftUint32>, test::Type<weftInt64>,
                   test::Type<weftUint64>) {
    constexpr weftDataType_t type = TestType::type;
    using T = Element<type>;
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    for (int round = 0; round < 500; ++round) {
        const auto divisor = uint32_t(round < 200 ? round + 1 : (random() >> random() % 32) | 1);
        std::vector<T> numbers(256);
        for (size_t i = 0; i < numbers.size(); ++i) {
            // Multiples of the divisor and their neighbours are the ones that a quotient rounded up gets wrong.
            const auto multiple = T(uint64_t(divisor) * (random() >> random() % 32));
            numbers[i] = sizeof(T) == 1 ? T(i) : T(uint64_t(multiple) + uint64_t(random() % 3) - 1);
        }
        const std::vector<const void*> from = {numbers.data()};
        const auto expected = truth<type>(weftAvg, from, numbers.size(), divisor);
        for (const CpuKernels* set : all_cpu_kernels()) {
            std::vector<T> result(numbers.size());
            void* const to[] = {result.data()};
            set->reduce[type][weftAvg]({to, 1, from.data(), 1, numbers.size(), divisor, Stores::ordinary});
            CAPTURE(set->isa, divisor);
            REQUIRE(result == expected);
        }
    }
}

TEMPLATE_TEST_CASE("fp32 is converted to floats of 16 bits and back as single numbers are", "[cpu_kernels]",
                   test::Type<weftFloat16>, test::Type<weftBfloat16>) {
    constexpr weftDataType_t type = TestType::type;
    using Numbers = Arithmetic<type>;
    WEFT_PRINT_SEED();
    std::mt19937 random(test::seed());
    // All small floats, the places between two of them, and any bits.
    std::vector<uint16_t> all(65536);
    std::vector<float> large;
    for (size_t i = 0; i < all.size(); ++i) {
        all[i] = uint16_t(i);
        const float number = Numbers::widen(all[i]), next = Numbers::widen(uint16_t(i + 1));
        for (const float each : {number, number / 2 + next / 2, std::bit_cast<float>(uint32_t(random()))})
            large.push_back(each);
    }
    for (const CpuKernels* set : all_cpu_kernels()) {
        CAPTURE(set->isa);
        CHECK(set->narrow[weftFloat32] == nullptr);
        std::vector<float> wide(all.size());
        std::vector<uint16_t> small(large.size());
        set->widen[type](wide.data(), all.data(), all.size());
        set->narrow[type](small.data(), large.data(), large.size());
        size_t wrong = 0;
        for (size_t i = 0; i < all.size(); ++i) {
            const float expected = Numbers::widen(all[i]);
            wrong += std::memcmp(&wide[i], &expected, 4) != 0 && (wide[i] == wide[i] || expected == expected);
        }
        for (size_t i = 0; i < large.size(); ++i) {
            const uint16_t expected = Numbers::round(large[i]);
            const float seen = Numbers::widen(small[i]);
            wrong += small[i] != expected && (seen == seen || large[i] == large[i]);
        }
        CHECK(wrong == 0);
        // Every length, at odd places, up to the end of accessible memory.
        const test::Brink floats(100 * 4), halves(100 * 2);
        for (size_t count = 0; count < 100; ++count) {
            std::memcpy(floats.last(count * 4), large.data() + count, count * 4);
            set->narrow[type](halves.last(count * 2), floats.last(count * 4), count);
            if (std::memcmp(halves.last(count * 2), small.data() + count, count * 2) != 0) FAIL("count " << count);
            set->widen[type](floats.last(count * 4), halves.last(count * 2), count);
            for (size_t i = 0; i < count; ++i) {
                const float expected = Numbers::widen(small[count + i]);
                const float seen = element_at<weftFloat32>(floats.last(count * 4), i);
                if (seen != expected && (seen == seen || expected == expected)) FAIL("count " << count);
            }
        }
    }
}

TEST_CASE("the machine's CPU kernels can be found by name, the plain ones always", "[cpu_kernels]") {
    REQUIRE(!all_cpu_kernels().empty());
    CHECK(&cpu_kernels() == all_cpu_kernels().front());
    for (const CpuKernels* set : all_cpu_kernels()) CHECK(find_cpu_kernels(set->isa) == set);
    REQUIRE(find_cpu_kernels("plain"));
    CHECK(std::string(find_cpu_kernels("plain")->isa) == "plain");
    CHECK(find_cpu_kernels("mmx") == nullptr);
}

}  // namespace weft::internal
