// restarts.hpp: how many ranks a job has after a failure, and its history of failures.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace weft::internal::tools {

struct Elasticity {
    int least = 1, most = 1;  // ranks
    int restarts_most = 3;
    bool shrinks = false;  // no replacement for a failed rank
    // Places of lost ranks are free again if a generation has lived so long; empty: never.
    std::optional<double> grows_after_s;
};

struct Failure {
    int rank = -1;         // the first one that failed
    int lost = 0;          // ranks that ended by themselves: by a signal, or by a status without an error from Weft
    double lived_s = 0;    // the generation, until then
    std::string sentence;  // names the rank
};

// A job is a sequence of generations. Each ends by its first failure, or passes.
class Restarts {
  public:
    Restarts(const Elasticity& elasticity, int ranks) : elasticity_(elasticity), ranks_(ranks) {}

    // Takes note of how a generation failed. Returns the ranks of the next one, or nothing if no restart is left.
    // A rank that fails first in two generations one after the other gets no replacement, as its place may be the cause.
    std::optional<int> after_failure(const Failure& failure);
    int count() const { return count_; }
    // As "1 of 3".
    std::string count_text() const;
    // One line for each failure.
    std::vector<std::string> history() const;

  private:
    Elasticity elasticity_;
    int ranks_;
    int count_ = 0;
    int last_failed_ = -1;  // rank
    std::vector<std::string> failures_;
};

}  // namespace weft::internal::tools
