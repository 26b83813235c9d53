// simulated_call.hpp: what `weft schedule` asks the simulator, for a prediction and for a picture alike.
#pragma once
#include <cstdint>

#include "algorithms/algorithm.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"

namespace weft::internal::tools {

// All of a call but who makes schedules. `bytes`: of the whole; `tile_bytes`: of the whole, 0: as the algorithm wants.
SimulatedCall simulated_call(const Algorithm& row, const HostKind& kind, const Layout& layout, uint64_t bytes,
                             uint64_t tile_bytes);

}  // namespace weft::internal::tools
