// race.hpp: one call made by several algorithms in turns, so that whatever the machine does meanwhile is done to all of
// them alike.
#pragma once
#include <string>
#include <vector>

#include "timing.hpp"

namespace perf {

// What weftCommExplainCollective says: the algorithms that can serve, and which of them would.
struct Candidates {
    std::vector<std::string> names;
    std::string chosen = "?";
    std::string transport = "?";
};
Candidates candidates_of(const std::string& explanation);
// What it says, all of it.
std::string explanation(Rank& rank, const char* collective, size_t count, weftDataType_t type, weftRedOp_t op,
                        int root);

// Of each algorithm, in the order given, the microseconds that a call took in each round, ascending: the mean of the
// round's calls on the slowest rank, alike on all ranks. About `seconds` long, but at least three calls of each; who is
// twice as slow as the best is asked less often. Calls ask for nothing of their own (weftCommSetCallConfig) when it is
// over.
std::vector<std::vector<double>> race(Rank& rank, const Case& measured, const std::vector<std::string>& algorithms,
                                      double seconds);

// What a tenth of the times do not exceed: the least one is luck where ranks share cores, and half of them or a quarter
// hold what others do on the machine. `times`: ascending, at least one.
inline double lower_decile(const std::vector<double>& times) { return times[(times.size() - 1) / 10]; }

}  // namespace perf
