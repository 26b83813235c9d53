// run_program.hpp: a benchmark's status and output, as its user sees them.
#pragma once
#include <sys/wait.h>

#include <cstdio>
#include <string>

#include "tests/catch.hpp"

struct Run {
    int status = -1;
    std::string output;  // standard output and error
};

inline Run run_command(const std::string& command) {
    Run result;
    std::FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    REQUIRE(pipe != nullptr);
    char text[4096];
    for (size_t length; (length = fread(text, 1, sizeof text, pipe)) > 0;) result.output.append(text, length);
    const int status = pclose(pipe);
    result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

inline int lines_with(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
}
