// topology_command.hpp: `weft topology`: shows a machine as a graph, searches it for channels, and converts its files.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand; when it is called, `exit_status` receives what the process shall return: 1 if a file cannot be
// read or written, 2 if the command line is wrong.
void add_topology_command(CLI::App& app, int& exit_status);
// `weft topology show`, for `command` to be called by another name, too.
void make_topology_show(CLI::App& command, int& exit_status);

}  // namespace weft::internal::tools
