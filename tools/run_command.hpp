// run_command.hpp: `weft run`: the launcher's command line.
#pragma once
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace weft::internal::tools {

// Adds the subcommand; when it is called, `exit_status` receives what the process shall return.
void add_run_command(CLI::App& app, int& exit_status);

// To be called on the arguments before they are parsed, so that `weft run -n 4 -- program --its-option` is understood.
void shield_separator(std::vector<std::string>& arguments);

}  // namespace weft::internal::tools
