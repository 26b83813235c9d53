// command_line.hpp: the command line of the benchmarks that are not of one collective.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <sstream>

#include "src/base/printing.hpp"

namespace perf {

// The exit status if nothing is to be run: 0 after the help text, 1 if that was lost, 2 for wrong arguments.
inline std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
    try {
        app.parse(argc, argv);
        return {};
    } catch (const CLI::ParseError& reason) {
        std::ostringstream answer, objection;
        const int status = app.exit(reason, answer, objection) == 0 ? 0 : 2;
        weft::internal::print_text(answer.str());
        weft::internal::print_error_text(objection.str());
        return weft::internal::status_after_output(app.get_name().c_str(), status);
    }
}

}  // namespace perf
