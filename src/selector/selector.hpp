// selector.hpp: which algorithm serves an operation: the least predicted time among the rows that are allowed and able.
// Decides on agreed facts alone (operation, layout, costs, rank 0's options), so that all ranks choose alike.
// Reentrant.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/selector/prediction.hpp"

namespace weft::internal {

struct Preferences {
    std::string algo;            // as WEFT_ALGO: AlgoRules; empty: all
    int channels = 0;            // 0: one
    bool deterministic = false;  // sums in rank order alone
};

struct Candidate {
    const Algorithm* algorithm;
    Prediction predicted;
    std::string excluded;  // why it is out; empty: it is in
};

struct Choice {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    Prediction predicted = {};
    uint64_t rings = 0;     // what tells the orders of ranks on rings from others
    uint64_t hash() const;  // of what ranks must choose alike
};

// Every row of the operation's collective, in the order of `rows`.
std::vector<Candidate> candidates(const Operation& operation, const Layout& layout, const Costs& costs,
                                  const Preferences& preferences, std::span<const Algorithm> rows);
Result<Choice> select(const Operation& operation, const Layout& layout, const Costs& costs,
                      const Preferences& preferences, std::span<const Algorithm> rows);

// What this library knows of shared memory between `ranks` ranks on `cores` cores, whose messages the
// kernel may copy.
LinkCosts host_link_costs(int ranks, int cores, bool uses_cma = true);
// The same where ranks are on several hosts; link_mbps: of the slowest host's network, 0: unknown. `one_machine`: all of
// them are this one.
LinkCosts network_link_costs(int ranks_per_core, int64_t link_mbps, bool uses_cma = true, bool one_machine = false);

// Why a row of a user's file is not for this call: its range of bytes, its root; empty: it is, or the row is Weft's
// own.
std::string not_meant_for(const Algorithm& row, const Operation& operation, int ranks);

// What was chosen for an operation among `candidates`, and what those that are in would take, the best first: a line
// for people.
std::string told(const Operation& operation, const Layout& layout, const Choice& choice,
                 std::vector<Candidate> candidates);
// Candidates with predicted times, and the choice: lines for people.
std::string explain(const Operation& operation, const Layout& layout, const Costs& costs,
                    const Preferences& preferences, std::span<const Algorithm> rows);

}  // namespace weft::internal
