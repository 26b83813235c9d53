// topology_command.hpp: `weft topology`: shows a machine as a graph, searches it for channels, and converts its files.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, it stores the process's exit status in `exit_status`.
// Status 1: a file cannot be read or written. Status 2: the command line is wrong.
void add_topology_command(CLI::App& app, int& exit_status);
// `weft topology show`, for a `command` with another name, too.
void make_topology_show(CLI::App& command, int& exit_status);

}  // namespace weft::internal::tools
