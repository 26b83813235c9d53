// explain_command.hpp: `weft info explain`: the algorithm of a call on ranks that need not exist, and the reasons.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

CLI::App* add_explain_command(CLI::App& info, int& exit_status);

}  // namespace weft::internal::tools
