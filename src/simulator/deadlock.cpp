#include "src/simulator/deadlock.hpp"

#include <algorithm>
#include <string>

namespace weft::internal {

static std::string waits_for(const SimulatedBlock& state, const Schedule& schedule) {
    switch (state.phase) {
        case BlockPhase::message: return fmt::format("a message of rank {}", state.block->source);
        case BlockPhase::credit: return fmt::format("a free slot of rank {}", state.block->target);
        case BlockPhase::dependency: return "a step of another block";
        case BlockPhase::meeting:
            return fmt::format("the other ranks of its flag block of {}", schedule.shared_ranks.size());
        default: return "nothing";
    }
}

Status deadlock_of(const std::vector<SimulatedBlock>& blocks, const std::vector<Schedule>& schedules) {
    std::string waiting;
    constexpr int named_most = 4;
    int named = 0;
    for (const SimulatedBlock& state : blocks) {
        if (named == named_most) break;
        if (state.phase == BlockPhase::ended) continue;
        ++named;
        const Schedule& schedule = schedules[size_t(state.rank)];
        waiting +=
            fmt::format("{}rank {}, block {}, step {}, tile {} for {}", waiting.empty() ? "" : "; ", state.rank,
                        state.block - schedule.blocks.data(), state.at.step, state.at.tile, waits_for(state, schedule));
    }
    const auto left = std::count_if(blocks.begin(), blocks.end(),
                                    [](const SimulatedBlock& state) { return state.phase != BlockPhase::ended; });
    return fail(error::schedule_deadlock, "{} blocks wait for ever with {} slots a connection: {}", left,
                schedules[0].fifo_depth, waiting);
}

}  // namespace weft::internal
