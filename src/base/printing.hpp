// printing.hpp: what a command prints. Output that is lost, on a full disk for instance, is a failure of the command.
#pragma once
#include <string_view>

#include "src/base/result.hpp"

namespace weft::internal {

// To standard output, which buffers it. Never throws; a failure is kept until it is asked for. Thread-safe.
void print_text(std::string_view text);
template <class... Arguments>
void print_output(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    print_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}
// To standard error. Never throws: fmt::print does where the sentence cannot be written. Thread-safe.
void print_error_text(std::string_view text);
template <class... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    print_error_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes what is buffered; keeps a failure, too.
void flush_output();
// Writes what is buffered. weftSystemError: that, or something printed before, was lost; the caller says why.
Status output_status();
// The last call of a command's main, whose status becomes 1 if its output was lost. Says so, unless output_status has
// returned it before.
int status_after_output(const char* program, int status);

}  // namespace weft::internal
