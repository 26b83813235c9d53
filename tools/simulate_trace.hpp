// simulate_trace.hpp: a simulated call as a trace that Chrome and Perfetto show: a process a rank, a thread a block, a
// slice a step and a slice for what it waited for; counters for the links that carry most.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "src/simulator/simulator.hpp"

namespace weft::internal::tools {

struct TraceBounds {
    int ranks = 64;              // the lowest
    uint64_t steps = 1'000'000;  // the first
    size_t links = 16;           // the busiest
    uint64_t loads = 1'000'000;  // the first changes of what they carry
};

struct TracedCall {
    uint64_t steps = 0, steps_left_out = 0;
    uint64_t loads_left_out = 0;
    int ranks = 0, ranks_left_out = 0;  // of those that are simulated
};

// Simulates the call once more and writes what happens to the file as it happens. `found`: what it was the first time.
Result<TracedCall> write_trace(const Fabric& fabric, SimulatedCall call, const Simulation& found,
                               const TraceBounds& bounds, const std::string& file);

}  // namespace weft::internal::tools
