// simulated_rank.hpp: the state of one simulated rank.
#pragma once
#include <cstdint>

namespace weft::internal {

struct SimulatedRank {
    int32_t first_block = 0, blocks = 0;
    int32_t thread_waiters = 0;  // blocks that wait for the only thread
    int32_t last = 0;            // the block that had the thread last
    bool thread_busy = false;
    int32_t working = 0;  // blocks
    double since_us = 0, busy_us = 0, end_us = 0;
    double slowness = 1;
    int32_t local_path = -1;
};

}  // namespace weft::internal
