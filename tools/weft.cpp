// weft: the one command: `weft run` starts ranks, `weft info` tells what this machine and this build can do.
#include <fcntl.h>
#include <fmt/core.h>
#include <weft/types.h>
#include <CLI/CLI.hpp>

#include "tools/info_command.hpp"
#include "tools/run_command.hpp"

int main(int argc, char** argv) {
    // A standard descriptor that is closed would be the next pipe's number.
    int lowest = open("/dev/null", O_RDWR);
    while (lowest >= 0 && lowest <= 2) lowest = dup(lowest);
    if (lowest > 2) close(lowest);

    CLI::App app("Weft: collective communication on one machine or many.", "weft");
    app.set_version_flag("--version", fmt::format("weft {}.{}.{}", WEFT_MAJOR, WEFT_MINOR, WEFT_PATCH));
    app.require_subcommand(1);
    int exit_status = 0;
    weft::tools::add_run_command(app, exit_status);
    weft::tools::add_info_command(app, exit_status);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& misuse) {
        // --help and --version come here, too, and are no failure.
        return app.exit(misuse) == 0 ? 0 : 2;
    }
    return exit_status;
}
