// rdma_check_command.hpp: `weft rdma-check`: tests and measures RDMA between two hosts.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, it stores the process's exit status in `exit_status`.
void add_rdma_check_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
