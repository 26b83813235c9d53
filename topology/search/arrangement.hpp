// arrangement.hpp: the consequences of the machines for a job's ranks: the NICs by which they leave their hosts, the
// order of rings, and the bandwidth of links. Also as lines of text for the log and `weft info explain`.
#pragma once
#include <string>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::topology {

struct ArrangementReport {
    double gbs = 0;                  // bandwidth of all rings together, by the links; 0: unknown
    std::vector<std::string> notes;  // one line each
};

// Adds ring orders to a layout of the job's ranks without orders; for several hosts also rails and `domains` (in the
// form of domains_of()). `what`: the name of the devices of the ranks. Every rank gets the same result.
ArrangementReport arrange(const Job& job, const char* what, std::vector<int32_t> domains, Layout& layout);

// Layout::domains, from the name of each host's NVLink domain; an empty name: none.
std::vector<int32_t> domains_of(const std::vector<std::string>& names);

// `4 6 5 7 ..`
std::string shortened(const std::vector<int32_t>& numbers, size_t most = 16);

}  // namespace weft::internal::topology
