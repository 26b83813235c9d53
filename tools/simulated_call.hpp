// simulated_call.hpp: the call that `weft schedule` simulates, for predictions and pictures.
#pragma once
#include <cstdint>

#include "algorithms/algorithm.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "src/simulator/simulator.hpp"

namespace weft::internal::tools {

// The call, without the maker of schedules. `bytes`: of the whole. `tile_bytes`: of the whole; 0: the algorithm's
// choice.
SimulatedCall simulated_call(const Algorithm& row, const HostKind& kind, const Layout& layout, uint64_t bytes,
                             uint64_t tile_bytes);

}  // namespace weft::internal::tools
