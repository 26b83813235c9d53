// simulated_hosts.hpp: the machines of a file, with ranks on them, as a communicator of such ranks would know them: each host
// tells of itself alone, and hosts that are alike share what they tell.
#pragma once
#include <memory>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::topology {

struct SimulatedHosts {
    std::vector<std::unique_ptr<const Graph>> graphs;  // of the job
    Job job;                                           // a host set is a host
    Layout layout;                                     // who is on which host, no more
    std::vector<int32_t> domains;                      // as arrange() takes them
    bool gpus = false;                                 // ranks sit on them; else on cpus
    int cores = 0;                                     // of the host with the fewest
    int64_t link_mbps = 0;                             // of the slowest host's widest port; 0: unknown
};

// So many copies of what the graph describes, each with an equal share of the ranks, placed as job_of_ranks() does.
// 0 ranks: as many as have room. weftInvalidArgument: they have none, or do not fill the copies alike.
Result<SimulatedHosts> simulate_hosts(const Graph& graph, int copies, int ranks);

}  // namespace weft::internal::topology
