// info_command.hpp: `weft info`: the features of this build, this machine's hardware, and the environment's options.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, it stores the process's exit status in `exit_status`: 1 if an option is wrong.
void add_info_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
