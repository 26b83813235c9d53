// algorithms.hpp: what each file of this folder gives registry.cpp for its row.
#pragma once
#include "algorithms/algorithm.hpp"

namespace weft {

Schedule ring_all_reduce(const Layout& layout, const Parameters& parameters);
double ring_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule one_shot_all_reduce(const Layout& layout, const Parameters& parameters);
double one_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

Schedule two_shot_all_reduce(const Layout& layout, const Parameters& parameters);
double two_shot_all_reduce_us(const Layout& layout, const LinkCosts& costs, size_t bytes);

}  // namespace weft
