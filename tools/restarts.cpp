#include "tools/restarts.hpp"

#include <fmt/format.h>

namespace weft::internal::tools {

std::optional<int> Restarts::after_failure(int rank, const std::string& sentence) {
    failures_.push_back(
        fmt::format("generation {} of {} rank{}: {}", count_, ranks_, ranks_ == 1 ? "" : "s", sentence));
    if (count_ == elasticity_.restarts_most) return std::nullopt;
    ++count_;
    const bool again = rank == last_failed_;
    last_failed_ = rank;
    if ((elasticity_.shrinks || again) && ranks_ > elasticity_.least) {
        --ranks_;
        last_failed_ = -1;  // ranks have moved to other places
    }
    return ranks_;
}

std::string Restarts::count_text() const { return fmt::format("{} of {}", count_, elasticity_.restarts_most); }

std::vector<std::string> Restarts::history() const { return failures_; }

}  // namespace weft::internal::tools
