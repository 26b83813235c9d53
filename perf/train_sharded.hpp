// train_sharded.hpp: gathers and reductions of a sharded model beside the bare collectives, and its memory.
#pragma once
#include <cstddef>

#include "rank.hpp"

namespace perf {

// A model of so many bytes of float32 in eight units, and one unit of an eighth.
void measure_sharded(Rank& rank, int rounds, size_t bytes);

}  // namespace perf
