#include "tools/restarts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::internal::tools {

std::optional<int> Restarts::after_failure(const Failure& failure) {
    failures_.push_back(
        fmt::format("generation {} of {} rank{}: {}", count_, ranks_, ranks_ == 1 ? "" : "s", failure.sentence));
    if (count_ == elasticity_.restarts_most) return std::nullopt;
    ++count_;
    const bool again = failure.rank == last_failed_;
    last_failed_ = failure.rank;
    const bool grows = elasticity_.grows_after_s && failure.lived_s >= *elasticity_.grows_after_s;
    const int places = grows ? elasticity_.most : ranks_;
    const int missing = elasticity_.shrinks ? std::max(1, failure.lost) : again ? 1 : 0;
    const int next = std::max(elasticity_.least, places - missing);
    if (next != ranks_) last_failed_ = -1;  // ranks have moved to other places
    return ranks_ = next;
}

std::string Restarts::count_text() const { return fmt::format("{} of {}", count_, elasticity_.restarts_most); }

std::vector<std::string> Restarts::history() const { return failures_; }

}  // namespace weft::internal::tools
