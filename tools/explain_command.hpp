// explain_command.hpp: `weft info explain`: which algorithm a call would take on ranks that need not exist, and why.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

CLI::App* add_explain_command(CLI::App& info, int& exit_status);

}  // namespace weft::internal::tools
