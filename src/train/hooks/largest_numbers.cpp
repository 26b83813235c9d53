#include "src/train/hooks/largest_numbers.hpp"

#include <algorithm>
#include <bit>

#include "src/base/block_scale.hpp"
#include "src/gpu/kernels/training/hook_sums.hpp"

namespace weft::internal::train {

namespace {

// The value from which on `count` numbers remain at most, by a count of all values of their upper bits, and then of the
// lower ones. `count` becomes the number of those that have the value and belong to them.
uint32_t threshold(std::span<const float> numbers, size_t& count) {
    constexpr unsigned low_bits = 15;
    const auto highest = [&](const std::vector<size_t>& counts) {
        uint32_t value = uint32_t(counts.size());
        while (value-- > 0 && counts[value] < count) count -= counts[value];
        return value;
    };
    std::vector<size_t> counts(size_t(1) << (31 - low_bits));
    for (const float number : numbers) ++counts[magnitude_bits(number) >> low_bits];
    const uint32_t high = highest(counts);
    counts.assign(size_t(1) << low_bits, 0);
    for (const float number : numbers)
        if (const uint32_t bits = magnitude_bits(number); bits >> low_bits == high)
            ++counts[bits & ((1u << low_bits) - 1)];
    return high << low_bits | highest(counts);
}

}  // namespace

std::vector<IndexedNumber> largest_numbers(std::span<const float> numbers, size_t count) {
    std::vector<IndexedNumber> largest;
    largest.reserve(count);
    size_t equal = count;
    const uint32_t least = threshold(numbers, equal);
    for (size_t i = 0; i < numbers.size(); ++i) {
        const uint32_t bits = magnitude_bits(numbers[i]);
        if (bits < least || (bits == least && equal == 0)) continue;
        if (bits == least) --equal;
        largest.push_back({uint32_t(i), numbers[i]});
    }
    return largest;
}

float largest_magnitude(std::span<const float> numbers) {
    uint32_t largest = 0;
    for (const float number : numbers) largest = std::max(largest, magnitude_bits(number));
    return std::bit_cast<float>(std::min(largest, 0x7f800000u));
}

double root_mean_square(std::span<const float> numbers) {
    constexpr cuda::Team alone{0, 1, 0, 1};
    cuda::HookBlock block;
    std::vector<double> sums(cuda::hook_chunks(numbers.size()));
    cuda::sum_squares(alone, numbers.data(), numbers.size(), sums.data(), block.wide);
    return cuda::root_mean_square(alone, sums.data(), numbers.size(), block.wide);
}

}  // namespace weft::internal::train
