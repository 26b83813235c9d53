// largest_numbers.hpp: the numbers of largest magnitude in a list.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace weft::internal::train {

// A message of top-k is an array of them.
struct IndexedNumber {
    uint32_t index;
    float number;
};

// The `count` numbers of largest magnitude, in the order of their indices. NaNs count as the largest. Of equal ones the
// first are taken.
std::vector<IndexedNumber> largest_numbers(std::span<const float> numbers, size_t count);
// The largest magnitude, or infinity if a number is a NaN.
float largest_magnitude(std::span<const float> numbers);

}  // namespace weft::internal::train
