// step_flows.hpp: the flows that move the bytes of a step: through a connection, or to and from ranks' memory.
#pragma once
#include <cstdint>

#include "src/schedule/schedule.hpp"
#include "src/simulator/simulated_connections.hpp"
#include "src/simulator/simulated_links.hpp"

namespace weft::internal {

struct MovingStep {
    const Schedule& schedule;
    const Instruction& instruction;
    int32_t iteration;
    double bytes;
    const SimulatedConnection* out;  // null: the step does not send
    int ranks;                       // of the call
    int32_t local_path;              // of the rank's own memory
    double slowness;                 // of the rank
    int32_t owner;                   // of the flows: the index of the block
};

// Returns the number of flows that have started.
int32_t start_flows(const MovingStep& step, const RankCosts& costs, SimulatedLinks& links, double now_us);

}  // namespace weft::internal
