// info_command.hpp: `weft info`: what this build can do, what this machine offers, what the environment sets.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand; when it is called, `exit_status` receives what the process shall return: 1 if an option is
// wrong.
void add_info_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
