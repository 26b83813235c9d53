// job.hpp: the location of ranks on the devices of machines, and which machines are equal.
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/result.hpp"
#include "topology/search/cut_bound.hpp"

namespace weft::internal::topology {

constexpr int sites_most = 576;  // of one machine: the size of the largest NVLink domain

// The location of a rank.
struct RankLocation {
    int host_set = 0;  // index into Job::graph_of
    int node = 0;      // of that graph: a GPU or a cpu
    // In a ring, ranks of one cpu are sorted by cache, then by core; the values only need an order.
    int cache = unknown, core = unknown;
};

// A host set is a host, or the hosts of a rack, described by one graph. The connected graphs must outlive the job and
// its results.
struct Job {
    std::vector<const Graph*> graphs;     // different ones
    std::vector<int> graph_of;            // of each host set: index into `graphs`
    std::vector<RankLocation> locations;  // by rank
};

// A machine is a set of hosts that links join: one host, or the hosts of an NVLink domain. Machines of one kind have
// the same graph, and ranks on the same devices.
struct MachineKind {
    int graph = 0;  // index into Job::graphs
    MachineGraph machine_graph;
    int machines = 0;        // the number of machines of this kind
    std::vector<int> sites;  // nodes in the order of RoutingGraph::sites()
};

struct PlacedMachine {
    int kind = 0;
    std::vector<std::vector<int32_t>> ranks;  // by site, in the order of a ring
};

struct Placement {
    std::vector<MachineKind> kinds;
    std::vector<PlacedMachine> machines;  // by lowest rank
};

// weftInvalidArgument: a location does not exist.
Result<Placement> place(const Job& job);

// A job of `copies` host sets with this graph. It has one rank on each GPU (of `devs`, if that is not empty), by host,
// rank and index. Without GPUs it has one rank on each cpu.
Result<Job> job_of_all(const Graph& graph, int copies, const std::vector<int>& devs = {});

// The same with `ranks` of each copy on its first GPUs. Without GPUs they are on cores, divided in proportion among the
// cpus. 0: on all GPUs or cores.
Result<Job> job_of_ranks(const Graph& graph, int copies, int ranks);

// The number of cores if known, else of hardware threads, else 1.
int cores_of(const Cpu& cpu);

}  // namespace weft::internal::topology
