// built_in_costs.hpp: the costs of links that this library assumes without a tuning. Reentrant.
#pragma once
#include "src/schedule/layout.hpp"

namespace weft::internal {

// The built-in costs of shared memory between `ranks` ranks on `cores` cores. `uses_cma`: messages may be copied by CMA.
LinkCosts host_link_costs(int ranks, int cores, bool uses_cma = true);
// The built-in costs of ranks on several hosts. `link_mbps`: the slowest host's network; 0: unknown. `one_machine`: all
// hosts are this machine.
LinkCosts network_link_costs(int ranks_per_core, int64_t link_mbps, bool uses_cma = true, bool one_machine = false);

// host_link_costs() or network_link_costs() for ranks in blocks on hosts, and hosts in blocks on machines of `cores` cores.
LinkCosts link_costs_in_blocks(int ranks, int hosts, int machines, int cores, int64_t link_mbps, bool uses_cma);

}  // namespace weft::internal
