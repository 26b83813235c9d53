// schedule_command.hpp: `weft schedule`: shows, writes, proves and simulates schedules.
#pragma once
#include <CLI/CLI.hpp>

namespace weft::internal::tools {

// Adds the subcommand. When it runs, it stores the process's exit status in `exit_status`.
// Status 1: a schedule is not proved, or a file cannot be read or written. Status 2: the command line is wrong.
void add_schedule_command(CLI::App& app, int& exit_status);

}  // namespace weft::internal::tools
