// simulated_block.hpp: the state of one block of a simulated rank.
#pragma once
#include <cstdint>

#include "src/schedule/schedule.hpp"
#include "src/simulator/simulation.hpp"

namespace weft::internal {

// The values from `message` on have the order of Awaited.
enum class BlockPhase : uint8_t {
    ready,       // to check whether the next step can begin
    message,     // waits for one
    credit,      // waits for a free slot
    dependency,  // waits for a step of its rank
    meeting,     // waits for the others of its flag block
    thread,      // waits for the only thread of its rank
    working,
    ended,
};
static_assert(int(BlockPhase::message) == int(Awaited::message) && int(BlockPhase::thread) == int(Awaited::thread));

struct SimulatedBlock {
    const Block* block;
    int32_t rank;               // simulated
    int32_t in = -1, out = -1;  // connections
    BlockPosition at;
    int32_t iteration = 0;
    BlockPhase phase = BlockPhase::ready;
    bool queued = false;
    int32_t flows = 0;    // flows of this step in progress
    double bytes = 0;     // bytes of this step's message or chunks
    double begin_us = 0;  // of this step; before that, the time since when it waits for the thread of its rank
    double busy_us = 0, end_us = 0;
    double ready_us = 0;  // when its last step that moved bytes ended
    Awaited awaited = Awaited::nothing;
};

}  // namespace weft::internal
