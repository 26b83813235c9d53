// deadlock.hpp: the report of blocks that wait for ever.
#pragma once
#include <vector>

#include "src/base/result.hpp"
#include "src/simulator/simulated_block.hpp"

namespace weft::internal {

// The failure that names the first blocks that have not ended. `blocks`: of all ranks, in the order of the ranks.
Status deadlock_of(const std::vector<SimulatedBlock>& blocks, const std::vector<Schedule>& schedules);

}  // namespace weft::internal
