// simulate_tune.hpp: a tuning file for a cluster that was never measured: times that the simulator makes up.
#pragma once
#include <functional>

#include "tools/simulate_report.hpp"

namespace weft::internal::tools {

// Every algorithm that can serve a request, simulated, and the scene that it is simulated in.
struct SimulatedRows {
    Scene scene;
    std::vector<SimulatedRow> rows;
};
using SimulateRows = std::function<Result<SimulatedRows>(const SimulateRequest& request)>;

// Writes the file that the request names, of one collective or, if it says none, all, at sizes up to its bytes.
// weftInvalidArgument: no tuning can be of such ranks, and why.
Status write_simulated_tuning(SimulateRequest request, const SimulateRows& rows_of);

}  // namespace weft::internal::tools
