// perf_command.hpp: `weft perf all_reduce ARGUMENTS`: starts the benchmark all_reduce_perf.
#pragma once
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, the process becomes the benchmark, or `exit_status` receives its status.
// The status is 0 for the list, 2 for a wrong name, 127 if the program is not found, 126 if it cannot be started.
void add_perf_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
