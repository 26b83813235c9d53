// simulate_trace.hpp: writes a simulated call as a trace for Chrome and Perfetto.
// Ranks are processes, blocks are threads, and each step has a slice and its wait another. The busiest links have
// counters.
#pragma once
#include <string>

#include "src/base/result.hpp"
#include "src/simulator/simulator.hpp"

namespace weft::internal::tools {

struct TraceBounds {
    int ranks = 64;              // the lowest ranks
    uint64_t steps = 1'000'000;  // the first steps
    size_t links = 16;           // the busiest links
    uint64_t loads = 1'000'000;  // the first changes of the links' loads
};

struct TracedCall {
    uint64_t steps = 0, steps_left_out = 0;
    uint64_t loads_left_out = 0;
    int ranks = 0, ranks_left_out = 0;  // of the simulated ranks
};

// Simulates the call again and writes events as they happen. `found`: the result of the first simulation.
Result<TracedCall> write_trace(const Fabric& fabric, SimulatedCall call, const Simulation& found,
                               const TraceBounds& bounds, const std::string& file);

}  // namespace weft::internal::tools
