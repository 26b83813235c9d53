// run_program.hpp: a benchmark's status and output, as its user sees them, on a terminal too.
#pragma once
#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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

// A terminal that programs may write to by its name: some kilobytes of output stay until they are read.
class Terminal {
  public:
    Terminal() : master_(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK)) {
        REQUIRE(grantpt(master_) == 0);
        REQUIRE(unlockpt(master_) == 0);
        name_ = ptsname(master_);
        slave_ = open(name_.c_str(), O_RDWR | O_NOCTTY);  // it is there as long as somebody has it open
        REQUIRE(slave_ >= 0);
    }
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;
    ~Terminal() {
        close(slave_);
        close(master_);
    }
    const std::string& name() const { return name_; }
    std::string read() {
        std::string all;
        char text[4096];
        for (ssize_t length; (length = ::read(master_, text, sizeof text)) > 0;) all.append(text, size_t(length));
        return all;
    }

  private:
    int master_, slave_ = -1;
    std::string name_;
};

inline int lines_with(const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++count;
    return count;
}
