// regret.hpp: --regret: compares the selected algorithm with the fastest one.
#pragma once
#include <string>
#include <vector>

#include "race.hpp"
#include "table.hpp"

namespace perf {

struct Timed {
    std::string algorithm;
    double us = 0;  // of each call
};

// A line of the table: one size.
struct RegretRow {
    Row setting;  // without results
    Timed chosen, best;
    std::vector<Timed> all;  // the algorithms that can run the call, in Weft's order
    int64_t wrong = 0;       // elements, over all algorithms
    double ratio() const { return best.us > 0 ? chosen.us / best.us : 1; }
};

// From a race between the candidates: the lower decile of each.
RegretRow regret_of(Row setting, const Candidates& candidates, const std::vector<std::vector<double>>& times,
                    double calls);

// Over all lines: the geometric mean and the maximum of the ratios, both less 1, in per cent.
struct Regret {
    double mean_percent = 0, worst_percent = 0;
    std::string worst;  // the line with the maximum
};
Regret summarize(const std::vector<RegretRow>& rows);

std::string regret_header();
std::string regret_text(const RegretRow& row);
std::string regret_footer(const Regret& regret);

}  // namespace perf
