// hosts_table.hpp: what the test of several hosts and the processes that it starts both know.
#pragma once
#include <algorithm>

#include "tests/conformance/table.hpp"

namespace weft::internal::test {

// How the ranks of a job lie: of each process the host and how many ranks it has.
struct Spread {
    struct Process {
        int host, ranks;
    };
    std::vector<Process> processes;
    std::vector<int32_t> hosts() const {
        std::vector<int32_t> all;
        for (const Process& process : processes) all.insert(all.end(), size_t(process.ranks), process.host);
        return all;
    }
    int ranks() const { return int(hosts().size()); }
};

// Each has a different number of ranks, by which tables identify it. The hosts have ranks in turn, processes that share
// memory, ranks that share a process (equally many on each host or not), or both.
inline std::vector<Spread> spreads() {
    std::vector<Spread> all{
        {{{0, 1}, {1, 1}, {0, 1}}}, {{{0, 1}, {0, 1}, {1, 1}, {1, 1}}}, {{{0, 3}, {1, 2}}}, {{{0, 2}, {1, 2}, {2, 2}}}};
    if (!small()) all.push_back({{{0, 2}, {0, 2}, {1, 2}, {1, 2}}});
    return all;
}

// Rows that none of table_test.cpp's communicators admit.
inline bool wants_hosts_of_several(const Algorithm& row) {
    return row.refusal({4, 0}) && row.refusal({4, 0, std::vector<int32_t>{0, 1, 2, 3}});
}
// Their names, in one order.
inline std::vector<std::string> names_of_two_levels() {
    std::vector<std::string> all;
    for (const Algorithm& row : registry::algorithms())
        if (wants_hosts_of_several(row) && std::find(all.begin(), all.end(), row.name) == all.end())
            all.emplace_back(row.name);
    return all;
}
inline std::vector<int> rank_counts_of(const Algorithm& row) {
    std::vector<int> all;
    for (const Spread& spread : spreads())
        if (!row.refusal({spread.ranks(), 0, spread.hosts()})) all.push_back(spread.ranks());
    return all;
}
inline std::string served_line(const Algorithm& row) {
    return std::string("served ") + row.name + " " + facts_of(row.collective).name + "\n";
}

}  // namespace weft::internal::test
