// tune_command.hpp: `weft tune`: measures this machine and writes the file that WEFT_TUNE_FILE names.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

void add_tune_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
