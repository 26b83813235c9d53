// schedule_command.hpp: `weft schedule`: shows, writes, proves and simulates schedules.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand; when it is called, `exit_status` receives what the process shall return: 1 if a schedule is not
// proved or a file cannot be read or written, 2 if the command line is wrong.
void add_schedule_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
