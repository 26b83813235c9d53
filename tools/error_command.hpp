// error_command.hpp: `weft explain`: what an error id means, its usual causes and what to do.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

void add_error_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
