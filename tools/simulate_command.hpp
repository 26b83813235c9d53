// simulate_command.hpp: `weft schedule simulate`: predicts the time of a collective on described hosts.
#pragma once
#include <CLI/CLI.hpp>

#include <functional>

#include "src/base/result.hpp"

namespace weft::internal::tools {

// Adds the subcommand to `weft schedule`; `report` receives errors.
void add_simulate_command(CLI::App& schedule_command, std::function<void(const Status&)> report);

}  // namespace weft::internal::tools
