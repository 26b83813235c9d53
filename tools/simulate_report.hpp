// simulate_report.hpp: what was simulated, as tables for people and JSON for machines.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tools/simulate_choice.hpp"

namespace weft::internal::tools {

struct SimulatedRow {
    const Algorithm* row = nullptr;
    std::optional<Simulation> found;   // on the machines as they are, damage and all; empty: `objection` says why not
    std::optional<double> healthy_us;  // where there is damage: without it
    // Where links that failed change rings: with those of before.
    std::optional<double> old_rings_us;
    std::string objection;
};

// One algorithm in detail. The names of links are the fabric's.
void print_simulation(const SimulateRequest& request, const Scene& scene, const Fabric& fabric,
                      const SimulatedRow& row);
// Several, the fastest first, and which of them Weft would choose, or why none.
void print_comparison(const SimulateRequest& request, const Scene& scene, std::vector<SimulatedRow> rows,
                      const Result<WeftChoice>& choice);

}  // namespace weft::internal::tools
