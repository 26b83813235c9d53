// overlap.hpp: finds boxes of one tensor that overlap.
#pragma once
#include <utility>
#include <vector>

#include "src/train/checkpoint/box.hpp"

namespace weft::internal::train {

// Two boxes that overlap, or null ones. Only boxes that meet in the dimension that tells most of them apart are
// compared.
std::pair<const Box*, const Box*> overlap_in(std::vector<const Box*> boxes);

}  // namespace weft::internal::train
