// selector.hpp: chooses the algorithm of an operation: the least predicted time among the rows that are allowed and able.
// It uses agreed facts alone (operation, layout, costs, rank 0's options), so all ranks choose alike. Reentrant.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "src/selector/prediction.hpp"

namespace weft::internal {

struct Preferences {
    std::string algo;            // rules as in WEFT_ALGO; empty: all
    int channels = 0;            // 0: one
    bool deterministic = false;  // only algorithms that sum in rank order
};

struct Candidate {
    const Algorithm* algorithm;
    Prediction predicted;
    std::string excluded;  // the reason; empty: it is not excluded
};

struct Choice {
    const Algorithm* algorithm = nullptr;
    Parameters parameters;
    Prediction predicted = {};
    uint64_t rings = 0;     // the digest of the ring orders
    uint64_t hash() const;  // of everything that must be equal on all ranks
};

// Every row of the operation's collective, in the order of `rows`.
std::vector<Candidate> candidates(const Operation& operation, const Layout& layout, const Costs& costs,
                                  const Preferences& preferences, std::span<const Algorithm> rows);
Result<Choice> select(const Operation& operation, const Layout& layout, const Costs& costs,
                      const Preferences& preferences, std::span<const Algorithm> rows);

// Why a row of a user's file does not serve this call: its range of bytes or its root. Empty: it does, or the row is
// Weft's own.
std::string not_meant_for(const Algorithm& row, const Operation& operation, int ranks);

// A line for the log: the choice, and the predicted times of the other candidates, the fastest first. `network`: the
// transport between hosts.
std::string choice_text(const Operation& operation, const Layout& layout, const Choice& choice,
                        std::vector<Candidate> candidates, std::string_view network = "tcp");
// Lines for the log: all candidates with predicted times, and the choice.
std::string explain(const Operation& operation, const Layout& layout, const Costs& costs,
                    const Preferences& preferences, std::span<const Algorithm> rows);

}  // namespace weft::internal
