// largest_numbers.hpp: the numbers of largest magnitude in a list, and their size.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "src/gpu/kernels/training/hook_arguments.hpp"

namespace weft::internal::train {

// A message of top-k is an array of them.
using cuda::IndexedNumber;

// The `count` numbers of largest magnitude, in the order of their indices. NaNs count as the largest. Of equal ones the
// first are taken.
std::vector<IndexedNumber> largest_numbers(std::span<const float> numbers, size_t count);
// The largest magnitude, or infinity if a number is a NaN.
float largest_magnitude(std::span<const float> numbers);
// In float64, in the order of hook_sums.hpp; 0: there are none.
double root_mean_square(std::span<const float> numbers);

}  // namespace weft::internal::train
