// arrangement.hpp: what its machines mean for a job's ranks: by which NICs they leave their hosts, in which order rings pass
// them, what links carry. And in lines for people, which communicators tell and `weft info explain` shows.
#pragma once
#include <string>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::topology {

struct ArrangementReport {
    double gbs = 0;                  // what the rings carry together, as far as links tell; 0: unknown
    std::vector<std::string> notes;  // a line each
};

// Gives a layout of the job's ranks, without orders, what is found: ring orders and, of several hosts, rails and
// `domains` (as domains_of() has them). `what`: what the ranks sit on, in words. Every rank finds the same.
ArrangementReport arrange(const Job& job, const char* what, std::vector<int32_t> domains, Layout& layout);

// Layout::domains, of each host's name of the NVLink domain that it is in; empty: it is in none.
std::vector<int32_t> domains_of(const std::vector<std::string>& names);

// `4 6 5 7 ..`
std::string shortened(const std::vector<int32_t>& numbers, size_t most = 16);

}  // namespace weft::internal::topology
