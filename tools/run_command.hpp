// run_command.hpp: `weft run`: the launcher's command line.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::tools {

// Adds the subcommand; when it is called, `exit_status` receives what the process shall return.
void add_run_command(CLI::App& app, int& exit_status);

}  // namespace weft::tools
