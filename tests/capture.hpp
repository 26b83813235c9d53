// capture.hpp: the text that this process writes to a standard stream.
#pragma once
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/catch.hpp"

namespace weft::internal::test {

// Redirects a standard stream into a temporary file.
class Capture {
  public:
    explicit Capture(FILE* stream) : stream_(stream), file_(std::tmpfile()) {
        std::fflush(stream_);
        saved_ = dup(fileno(stream_));
        REQUIRE(dup2(fileno(file_), fileno(stream_)) >= 0);
    }
    std::string end() {
        std::fflush(stream_);
        dup2(saved_, fileno(stream_));
        close(saved_);
        std::string text;
        std::rewind(file_);
        for (int letter; (letter = std::fgetc(file_)) != EOF;) text += char(letter);
        std::fclose(file_);
        return text;
    }

  private:
    FILE* stream_;
    FILE* file_;
    int saved_ = -1;
};

}  // namespace weft::internal::test
