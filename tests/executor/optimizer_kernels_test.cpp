// Every set of optimizer kernels that this machine can run, bit for bit against the formulas on single elements.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "src/kernels/cpu_kernels.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal {
namespace {

constexpr size_t array_counts[] = {0, 1, 3, 15, 16, 17, 31, 33, 100, 1024};

struct ScalarRoot {
    float operator()(float value) const { return std::sqrt(value); }
};

// Numbers of all magnitudes; `positive` ones for second moments.
std::vector<float> random_numbers(size_t count, std::mt19937& random, bool positive = false) {
    std::vector<float> result(count);
    for (float& each : result) {
        each = std::ldexp(float(random()) * 0x1p-32f, int(random() % 40) - 30);
        if (!positive && random() % 2) each = -each;
    }
    return result;
}

bool same_bits(const std::vector<float>& left, const std::vector<float>& right) {
    return left.empty() || !memcmp(left.data(), right.data(), left.size() * sizeof(float));
}

// The arrays of one call, and one element behind them that must stay.
struct Arrays {
    Arrays(size_t count, std::mt19937& random)
        : values(random_numbers(count + 1, random)),
          first(random_numbers(count + 1, random)),
          second(random_numbers(count + 1, random, true)),
          gradient(random_numbers(count + 1, random)) {}
    bool operator==(const Arrays& other) const {
        return same_bits(values, other.values) && same_bits(first, other.first) && same_bits(second, other.second) &&
               same_bits(gradient, other.gradient);
    }
    std::vector<float> values, first, second, gradient;
};

// Compares kernel(set, arrays, count) with formula(arrays, i) for each element.
template <class Kernel, class Formula>
void compare_kernels(Kernel&& kernel, Formula&& formula) {
    std::mt19937 random(test::seed());
    for (const CpuKernels* set : all_cpu_kernels())
        for (const size_t count : array_counts) {
            const Arrays before(count, random);
            Arrays seen = before, expected = before;
            kernel(set->optimizers, seen, count);
            for (size_t i = 0; i < count; ++i) formula(expected, i);
            CAPTURE(set->isa, count);
            CHECK((seen == expected));
        }
}

constexpr AdamStep adam_coefficients{.scale = 0.5f,
                                     .decay = 0.01f,
                                     .shrink = 0.999f,
                                     .mix1 = 0.1f,
                                     .beta2 = 0.999f,
                                     .mix2 = 0.001f,
                                     .rate = 0.003f,
                                     .root_scale = 2.5f,
                                     .epsilon = 1e-8f};

TEST_CASE("SGD's kernels compute its formula on any number of elements") {
    for (const bool nesterov : {false, true}) {
        const SgdStep step{
            .scale = 0.25f, .decay = 0.1f, .momentum = 0.9f, .damping = 0.7f, .rate = 0.3f, .nesterov = nesterov};
        compare_kernels(
            [&](const OptimizerKernels& kernels, Arrays& a, size_t count) {
                kernels.sgd(step, a.values.data(), a.first.data(), a.gradient.data(), count);
            },
            [&](Arrays& a, size_t i) { descend<float>(step, a.values[i], a.first[i], a.gradient[i]); });
        compare_kernels([&](const OptimizerKernels& kernels, Arrays& a,
                            size_t count) { kernels.sgd(step, a.values.data(), nullptr, a.gradient.data(), count); },
                        [&](Arrays& a, size_t i) { descend<float>(step, a.values[i], a.gradient[i]); });
    }
}

TEST_CASE("Adam's kernels compute its formula on any number of elements") {
    compare_kernels(
        [](const OptimizerKernels& kernels, Arrays& a, size_t count) {
            kernels.adam(adam_coefficients, a.values.data(), a.first.data(), a.second.data(), a.gradient.data(), count);
        },
        [](Arrays& a, size_t i) {
            adam<float>(adam_coefficients, a.values[i], a.first[i], a.second[i], a.gradient[i], ScalarRoot());
        });
}

TEST_CASE("LAMB's kernels compute its formulas on any number of elements") {
    compare_kernels(
        [](const OptimizerKernels& kernels, Arrays& a, size_t count) {
            kernels.lamb_direction(adam_coefficients, a.values.data(), a.first.data(), a.second.data(),
                                   a.gradient.data(), a.gradient.data(), count);
        },
        [](Arrays& a, size_t i) {
            float first = a.first[i], second = a.second[i];
            a.gradient[i] =
                lamb_direction<float>(adam_coefficients, a.values[i], first, second, a.gradient[i], ScalarRoot());
        });
    compare_kernels(
        [](const OptimizerKernels& kernels, Arrays& a, size_t count) {
            kernels.lamb(adam_coefficients, 0.7f, a.values.data(), a.first.data(), a.second.data(), a.gradient.data(),
                         count);
        },
        [](Arrays& a, size_t i) {
            a.values[i] -= lamb_direction<float>(adam_coefficients, a.values[i], a.first[i], a.second[i], a.gradient[i],
                                                 ScalarRoot()) *
                           0.7f;
        });
}

TEST_CASE("sums of squares are equal on all sets, and precise") {
    std::mt19937 random(test::seed());
    for (const size_t count : array_counts) {
        const auto values = random_numbers(count, random);
        double exact = 0;
        for (const float value : values) exact += double(value) * double(value);
        const double first = all_cpu_kernels().front()->optimizers.squares(values.data(), count);
        CHECK(std::fabs(first - exact) <= 1e-13 * exact);
        for (const CpuKernels* set : all_cpu_kernels())
            CHECK(std::bit_cast<uint64_t>(set->optimizers.squares(values.data(), count)) ==
                  std::bit_cast<uint64_t>(first));
    }
}

TEST_CASE("one infinite or NaN element is found at any place") {
    const float wrong[] = {INFINITY, -INFINITY, NAN, -std::numeric_limits<float>::quiet_NaN()};
    for (const CpuKernels* set : all_cpu_kernels())
        for (const size_t count : array_counts) {
            std::vector<float> values(count + 1, std::numeric_limits<float>::max());
            values[count] = INFINITY;  // behind the end
            CHECK(set->optimizers.all_finite(values.data(), count));
            for (size_t i = 0; i < count; ++i) {
                values[i] = wrong[i % 4];
                CHECK(!set->optimizers.all_finite(values.data(), count));
                values[i] = -std::numeric_limits<float>::max();
            }
        }
}

}  // namespace
}  // namespace weft::internal
