// simulate_command.hpp: `weft schedule simulate`: how long a collective would take on hosts that one describes.
#pragma once
#include <CLI/CLI.hpp>

#include <functional>

#include "src/base/result.hpp"

namespace weft::internal::tools {

// Adds the subcommand to `weft schedule`; `report` says what went wrong.
void add_simulate_command(CLI::App& schedule_command, std::function<void(const Status&)> report);

}  // namespace weft::internal::tools
