// simulate_tune.hpp: a tuning file for a cluster without measurements, from simulated times.
#pragma once
#include <functional>

#include "tools/simulate_report.hpp"

namespace weft::internal::tools {

// All algorithms that can serve a request, simulated, and the scene of the simulation.
struct SimulatedRows {
    Scene scene;
    std::vector<SimulatedRow> rows;
};
using SimulateRows = std::function<Result<SimulatedRows>(const SimulateRequest& request)>;

// Writes the tuning file of the request, for one collective or for all, at sizes up to its bytes.
// weftInvalidArgument: no tuning fits such ranks; the message has the reason.
Status write_simulated_tuning(SimulateRequest request, const SimulateRows& rows_of);

}  // namespace weft::internal::tools
