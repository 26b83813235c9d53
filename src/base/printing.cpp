#include "src/base/printing.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace weft::internal {
namespace {

std::atomic<int> first_error{0};  // errno of the first output that was lost
std::atomic<bool> is_told{false};

void remember(int error) {
    int none = 0;
    first_error.compare_exchange_strong(none, error != 0 ? error : EIO);
}

}  // namespace

void print_text(std::string_view text) {
    errno = 0;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) remember(errno);
}

void print_error_text(std::string_view text) { (void)!std::fwrite(text.data(), 1, text.size(), stderr); }

void flush_output() {
    errno = 0;
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) remember(errno);
}

Status output_status() {
    flush_output();
    if (first_error == 0) return ok();
    is_told = true;
    return fail(error::file_unwritable, "standard output could not be written: {}", errno_text(first_error));
}

int status_after_output(const char* program, int status) {
    const bool told = is_told;
    const Status output = output_status();
    if (output) return status;
    if (!told) print_error("{}: {}\n", program, output.sentence());
    return status != 0 ? status : 1;
}

}  // namespace weft::internal
