// command.hpp: runs `weft schedule` in this process and captures its output.
#pragma once
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/capture.hpp"
#include "tests/catch.hpp"
#include "tools/schedule_command.hpp"

namespace weft::internal::test {

struct ProcessResult {
    int exit_status = -1;
    std::string out, err;
};

inline ProcessResult run(std::vector<std::string> arguments) {
    CLI::App app("", "weft");
    ProcessResult outcome;
    weft::internal::tools::add_schedule_command(app, outcome.exit_status);
    std::reverse(arguments.begin(), arguments.end());
    Capture out(stdout), err(stderr);
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& misuse) {
        outcome.exit_status = 2;
        outcome.err = misuse.what();
    }
    outcome.err += err.end();
    outcome.out = out.end();
    return outcome;
}

inline std::string file_text(const std::string& name) {
    std::ifstream file(name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct TemporaryFile {
    std::string name = "/tmp/weft_schedule_test_XXXXXX";
    TemporaryFile() { close(mkstemp(name.data())); }
    ~TemporaryFile() { unlink(name.c_str()); }
};

}  // namespace weft::internal::test
