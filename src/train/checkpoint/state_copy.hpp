// state_copy.hpp: a copy of the state of one rank, in the memory of that rank or of another one.
#pragma once
#include <cstddef>
#include <vector>

#include "src/train/checkpoint/metadata.hpp"
#include "src/train/checkpoint/replica_groups.hpp"

namespace weft::internal::train {

// The state of one rank. The boxes lie one behind the other in `data`: StoredBox::begin says where.
struct StateCopy {
    HeldCopy facts;
    std::vector<StoredBox> boxes;
    std::vector<std::byte> data;
};

}  // namespace weft::internal::train
