// simulated_hosts.hpp: the machines of a file with ranks, as a communicator of such ranks would know them. Each host
// describes only itself, and equal hosts share a description.
#pragma once
#include <memory>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/job.hpp"

namespace weft::internal::topology {

struct SimulatedHosts {
    std::vector<std::unique_ptr<const Graph>> graphs;  // of the job
    Job job;                                           // a host set is one host
    Layout layout;                                     // only the hosts of the ranks
    std::vector<int32_t> domains;                      // as arrange() needs them
    bool gpus = false;                                 // true: ranks run on GPUs; else on cpus
    int cores = 0;                                     // of the host with the fewest cores
    int64_t link_mbps = 0;                             // of the widest port of the slowest host; 0: unknown
};

// Makes `copies` copies of the described machines, each with an equal share of the ranks, placed as in job_of_ranks().
// With 0 ranks, as many as fit. weftInvalidArgument: the ranks do not fit, or cannot be divided equally.
Result<SimulatedHosts> simulate_hosts(const Graph& graph, int copies, int ranks);

}  // namespace weft::internal::topology
