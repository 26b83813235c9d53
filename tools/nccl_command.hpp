// nccl_command.hpp: `weft nccl-path`: the folder of libnccl.so.2, for LD_LIBRARY_PATH.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

void add_nccl_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
