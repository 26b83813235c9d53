// run_command.hpp: `weft run`: the launcher's command line.
#pragma once
#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, it stores the process's exit status in `exit_status`.
void add_run_command(CLI::App& app, int& exit_status);

// Call this on the arguments before they are parsed, so that CLI11 accepts `weft run -n 4 -- program --its-option`.
void shield_separator(std::vector<std::string>& arguments);

}  // namespace weft::internal::tools
