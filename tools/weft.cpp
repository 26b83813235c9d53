// weft: the command with all subcommands.
// `weft run` starts ranks, `weft info` shows build and machine, `weft schedule` shows and proves schedules.
// `weft topology` shows machines and searches channels, `weft tune` measures this machine.
// `weft perf` starts benchmarks, `weft rdma-check` checks RDMA between two hosts, `weft explain` explains error ids, `weft nccl-path` finds libnccl.so.2.
#include <fcntl.h>
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "src/base/build_facts.hpp"
#include "src/base/printing.hpp"
#include "tools/error_command.hpp"
#include "tools/info_command.hpp"
#include "tools/nccl_command.hpp"
#include "tools/perf_command.hpp"
#include "tools/rdma_check_command.hpp"
#include "tools/run_command.hpp"
#include "tools/schedule_command.hpp"
#include "tools/topology_command.hpp"
#include "tools/tune_command.hpp"

int main(int argc, char** argv) {
    // If a standard descriptor is closed, the next pipe would get its number.
    int lowest = open("/dev/null", O_RDWR);
    while (lowest >= 0 && lowest <= 2) lowest = dup(lowest);
    if (lowest > 2) close(lowest);

    CLI::App app("Weft: collective communication on one machine or many.", "weft");
    app.set_version_flag("--version", "weft " + weft::internal::library_version());
    app.require_subcommand(1);
    int exit_status = 0;
    weft::internal::tools::add_run_command(app, exit_status);
    weft::internal::tools::add_info_command(app, exit_status);
    weft::internal::tools::add_schedule_command(app, exit_status);
    weft::internal::tools::add_topology_command(app, exit_status);
    weft::internal::tools::add_tune_command(app, exit_status);
    weft::internal::tools::add_perf_command(app, exit_status);
    weft::internal::tools::add_rdma_check_command(app, exit_status);
    weft::internal::tools::add_error_command(app, exit_status);
    weft::internal::tools::add_nccl_command(app, exit_status);
    std::vector<std::string> arguments(argv + 1, argv + argc);
    if (!arguments.empty() && arguments[0] == "run") weft::internal::tools::shield_separator(arguments);
    auto is_named = [&](CLI::App* command) { return command->check_name(arguments[0]); };
    if (!arguments.empty() && arguments[0].substr(0, 1) != "-" && app.get_subcommands(is_named).empty()) {
        weft::internal::print_error("weft: {} is not a command; `weft --help` lists them\n", arguments[0]);
        return 2;
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& misuse) {
        // --help and --version also come here and are no failure.
        std::ostringstream answer, objection;
        exit_status = app.exit(misuse, answer, objection) == 0 ? 0 : 2;
        weft::internal::print_text(answer.str());
        weft::internal::print_error_text(objection.str());
    } catch (const std::bad_alloc&) {
        weft::internal::print_error("weft: out of memory\n");
        exit_status = 1;
    }
    return weft::internal::status_after_output("weft", exit_status);
}
