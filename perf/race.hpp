// race.hpp: times one call with several algorithms in turn, so that disturbances of the machine affect all of them
// alike.
#pragma once
#include <string>
#include <vector>

#include "timing.hpp"

namespace perf {

// The answer of weftCommExplainCollective: the algorithms that can run the call, and the selected one.
struct Candidates {
    std::vector<std::string> names;
    std::string chosen = "?";
    std::string transport = "?";
};
Candidates candidates_of(const std::string& explanation);
// The full text of the explanation.
std::string explanation(Rank& rank, const char* collective, size_t count, weftDataType_t type, weftRedOp_t op,
                        int root);

// For each algorithm, in the given order: the microseconds of a call in each round, ascending, equal on all ranks.
// A round's time is the mean of its calls on the slowest rank.
// The race takes about `seconds`, but at least three calls of each. An algorithm twice as slow as the best runs less
// often.
// When the race is over, the communicator's call configuration is reset (weftCommSetCallConfig).
std::vector<std::vector<double>> race(Rank& rank, const Case& measured, const std::vector<std::string>& algorithms,
                                      double seconds);

// The lower decile. The least time is luck where ranks share cores, and the median includes other processes' load.
// `times`: ascending, at least one.
inline double lower_decile(const std::vector<double>& times) { return times[(times.size() - 1) / 10]; }

}  // namespace perf
