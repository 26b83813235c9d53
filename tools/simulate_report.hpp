// simulate_report.hpp: prints results of simulations as tables or JSON.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/simulate_choice.hpp"

namespace weft::internal::tools {

struct SimulatedRow {
    const Algorithm* row = nullptr;
    std::optional<Simulation> found;   // on the machines with their faults; empty: `objection` has the reason
    std::optional<double> healthy_us;  // with faults only: the time without them
    // If failed links change the rings: the time with the old rings.
    std::optional<double> old_rings_us;
    std::string objection;
    ErrorId objection_id = ErrorId::none;
};

// Prints one algorithm in detail. The fabric defines the names of links.
void print_simulation(const SimulateRequest& request, const Scene& scene, const Fabric& fabric,
                      const SimulatedRow& row);
// Prints several algorithms, the fastest first, and Weft's choice or the reason why there is none.
void print_comparison(const SimulateRequest& request, const Scene& scene, std::vector<SimulatedRow> rows,
                      const Result<WeftChoice>& choice);

}  // namespace weft::internal::tools
