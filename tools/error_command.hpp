// error_command.hpp: `weft explain`: the meaning of an error id, its usual causes and their remedies.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

void add_error_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
