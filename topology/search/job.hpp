// job.hpp: who sits where: ranks on the devices of machines, and which machines are alike.
#pragma once
#include <cstdint>
#include <vector>

#include "src/base/result.hpp"
#include "topology/search/cut_bound.hpp"

namespace weft::internal::topology {

constexpr int sites_most = 576;  // of one machine: the largest NVLink domain that there is

// Where a rank sits.
struct RankLocation {
    int host_set = 0;  // index into Job::graph_of
    int node = 0;      // of that graph: a GPU or a cpu
    // Ranks of one cpu stand in a ring by their caches, then by cores; any numbers that order them.
    int cache = unknown, core = unknown;
};

// Host sets are what one graph describes: a host, or those of a rack. Graphs, connected, must outlive the job
// and what is found for it.
struct Job {
    std::vector<const Graph*> graphs;     // different ones
    std::vector<int> graph_of;            // of each host set: index into graphs
    std::vector<RankLocation> locations;  // by rank
};

// Machines are what links join: a host, or hosts of one NVLink domain. Those of one kind have the same graph, and ranks
// on the same devices.
struct MachineKind {
    int graph = 0;  // index into Job::graphs
    MachineGraph machine_graph;
    int machines = 0;        // how many of them
    std::vector<int> sites;  // nodes, as rings count them: RoutingGraph::sites()
};

struct PlacedMachine {
    int kind = 0;
    std::vector<std::vector<int32_t>> ranks;  // by site, in the order in which a ring passes them
};

struct Placement {
    std::vector<MachineKind> kinds;
    std::vector<PlacedMachine> machines;  // by their lowest rank
};

// weftInvalidArgument: a location that is none.
Result<Placement> place(const Job& job);

// A job of `copies` host sets like this graph, one rank on each GPU (with one of `devs`, if that is not empty), by host,
// rank and index; where it has no GPU, one on each cpu.
Result<Job> job_of_all(const Graph& graph, int copies, const std::vector<int>& devs = {});

// The same with `ranks` of each copy: on its first GPUs; where it has no GPU, on cores, as many of each cpu as it has of
// all. 0: on all of them.
Result<Job> job_of_ranks(const Graph& graph, int copies, int ranks);

// Where nobody says how many a cpu has, its hardware threads count, else it is one.
int cores_of(const Cpu& cpu);

}  // namespace weft::internal::topology
