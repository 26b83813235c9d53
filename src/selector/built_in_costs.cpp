#include "src/selector/built_in_costs.hpp"

#include <algorithm>

namespace weft::internal {

LinkCosts host_link_costs(int ranks, int cores, bool uses_cma) {
    LinkCosts costs;
    if (!uses_cma) costs.zero_copy_most_bytes = 0;
    costs.ranks_per_core = (ranks + cores - 1) / std::max(1, cores);
    // Two ranks with a core each have little skew, and their slots stay in the caches. Sums are not in the cache of the
    // other rank (perf/results/2026-11-27-special-cases.md).
    if (ranks == 2 && costs.ranks_per_core == 1) {
        costs.skew_us = 0.1;
        costs.sums_skew = 8;
    }
    return costs;
}

LinkCosts network_link_costs(int ranks_per_core, int64_t link_mbps, bool uses_cma, bool one_machine) {
    LinkCosts costs;
    if (!uses_cma) costs.zero_copy_most_bytes = 0;
    costs.ranks_per_core = ranks_per_core;
    costs.one_machine = one_machine;
    if (link_mbps > 0) {
        costs.net_us_per_byte = 8.0 / double(link_mbps);
    } else if (one_machine) {
        costs.net_latency_us = LinkCosts::loopback_latency_us;
        costs.net_us_per_byte = LinkCosts::loopback_us_per_byte;
    }
    return costs;
}

LinkCosts link_costs_in_blocks(int ranks, int hosts, int machines, int cores, int64_t link_mbps, bool uses_cma) {
    if (hosts == 1) return host_link_costs(ranks, cores, uses_cma);
    const bool one_machine = machines == 1;
    const int here = (ranks + machines - 1) / machines;
    return network_link_costs((here + cores - 1) / std::max(1, cores), one_machine ? 0 : link_mbps, uses_cma,
                              one_machine);
}

}  // namespace weft::internal
