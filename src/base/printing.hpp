// printing.hpp: output of a command. Lost output, for instance on a full disk, is a failure of the command.
#pragma once
#include <string_view>

#include "src/base/result.hpp"

namespace weft::internal {

// To standard output, buffered. Never throws; a failure is kept until it is queried. Thread-safe.
void print_text(std::string_view text);
template <class... Arguments>
void print_output(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    print_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}
// To standard error. Never throws, while fmt::print does if the sentence cannot be written. Thread-safe.
void print_error_text(std::string_view text);
template <class... Arguments>
void print_error(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    print_error_text(fmt::format(format, std::forward<Arguments>(arguments)...));
}

// Writes the buffered text; keeps a failure, too.
void flush_output();
// Writes the buffered text. weftSystemError: this text or earlier text was lost; the caller reports it.
Status output_status();
// The last call of a command's main, whose status becomes 1 if its output was lost. Reports this unless output_status
// has returned it before.
int status_after_output(const char* program, int status);

}  // namespace weft::internal
