#include "topology/search/job.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "topology/files/graph_xml.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/search/routing_graph.hpp"

namespace weft::internal::topology {

static constexpr int64_t ranks_most = int64_t(1) << 20;

Result<Placement> place(const Job& job) {
    Placement result;
    if (job.locations.empty()) return fail(error::topology_placement, "the job has no ranks");
    std::vector<std::vector<int>> island_of(job.graphs.size());
    std::vector<std::vector<std::vector<int>>> islands;
    for (size_t i = 0; i < job.graphs.size(); ++i) {
        islands.push_back(islands_of(*job.graphs[i]));
        island_of[i].resize(job.graphs[i]->nodes().size());
        for (size_t island = 0; island < islands[i].size(); ++island)
            for (const int node : islands[i][island]) island_of[i][size_t(node)] = int(island);
    }
    // Machines by their lowest rank, with the ranks on each node.
    using RanksByNode = std::map<int, std::vector<std::tuple<int, int, int32_t>>>;  // cache, core, rank
    std::map<std::pair<int, int>, size_t> machines;                                 // by host set and island
    std::vector<RanksByNode> ranks_by_node;
    std::vector<std::pair<int, int>> whose;  // graph and island
    for (size_t rank = 0; rank < job.locations.size(); ++rank) {
        const RankLocation& location = job.locations[rank];
        if (location.host_set < 0 || size_t(location.host_set) >= job.graph_of.size())
            return fail(error::topology_placement, "rank {} is on host set {}; there are {} host sets", rank,
                        location.host_set, job.graph_of.size());
        const int which = job.graph_of[size_t(location.host_set)];
        if (which < 0 || size_t(which) >= job.graphs.size())
            return fail(error::topology_placement, "host set {} is of graph {}; there are {} graphs", location.host_set,
                        which, job.graphs.size());
        const Graph& graph = *job.graphs[size_t(which)];
        if (location.node < 0 || size_t(location.node) >= graph.nodes().size())
            return fail(error::topology_placement, "rank {} is on node {}; there are {} nodes", rank, location.node,
                        graph.nodes().size());
        const NodeKind kind = graph.node(location.node).kind;
        if (kind != NodeKind::gpu && kind != NodeKind::cpu)
            return fail(error::topology_placement, "rank {} is on {}; ranks run on GPUs and cpus", rank,
                        graph.name(location.node));
        const int island = island_of[size_t(which)][size_t(location.node)];
        const auto [found, added] = machines.try_emplace({location.host_set, island}, ranks_by_node.size());
        if (added) {
            ranks_by_node.emplace_back();
            whose.emplace_back(which, island);
        }
        ranks_by_node[found->second][location.node].emplace_back(location.cache, location.core, int32_t(rank));
    }
    std::map<std::tuple<int, int, std::vector<int>>, int> kinds;
    for (size_t i = 0; i < ranks_by_node.size(); ++i) {
        std::vector<int> nodes;
        for (const auto& [node, ranks] : ranks_by_node[i]) nodes.push_back(node);
        const auto [which, island] = whose[i];
        if (nodes.size() > size_t(sites_most))
            return fail(error::topology_placement, "one machine has ranks on {} devices; a search takes at most {}",
                        nodes.size(), sites_most);
        const auto [found, added] = kinds.try_emplace({which, island, nodes}, int(kinds.size()));
        if (added) {
            MachineKind& kind = result.kinds.emplace_back();
            kind.graph = which;
            kind.machine_graph = {job.graphs[size_t(which)], islands[size_t(which)][size_t(island)], nodes,
                                  ranks_by_node.size() > 1, PathClass::sys};
            kind.sites = RoutingGraph(kind.machine_graph).sites();
        }
        MachineKind& kind = result.kinds[size_t(found->second)];
        ++kind.machines;
        PlacedMachine machine{found->second, {}};
        for (const int site : kind.sites) {
            auto& ranks = ranks_by_node[i][site];
            std::sort(ranks.begin(), ranks.end());
            auto& in_order = machine.ranks.emplace_back();
            for (const auto& [cache, core, rank] : ranks) in_order.push_back(rank);
        }
        result.machines.push_back(std::move(machine));
    }
    return result;
}

int cores_of(const Cpu& cpu) {
    return cpu.cores > 0 ? cpu.cores : std::max(1, CpuMask::from_mask(cpu.affinity).count());
}

Result<Job> job_of_all(const Graph& graph, int copies, const std::vector<int>& devs) {
    if (copies < 1 || copies > hosts_most)
        return fail(error::topology_placement, "there are {} hosts; a job has 1 to {}", copies, hosts_most);
    std::vector<int> nodes;
    const std::vector<int> all = devs_of(graph);
    const std::set<int> wanted(devs.begin(), devs.end());
    std::set<int> found;
    for (const int gpu : graph.of_kind(NodeKind::gpu)) {
        if (!wanted.empty() && wanted.count(all[size_t(gpu)]) == 0) continue;
        nodes.push_back(gpu);
        found.insert(all[size_t(gpu)]);
    }
    for (const int dev : wanted)
        if (found.count(dev) == 0) return fail(error::topology_placement, "gpu {} does not exist", dev);
    if (nodes.empty()) nodes = graph.of_kind(NodeKind::cpu);
    std::stable_sort(nodes.begin(), nodes.end(), [&](int one, int other) {
        const Node &a = graph.node(one), &b = graph.node(other);
        return std::tuple(a.host, a.gpu.rank, a.gpu.dev, a.cpu.numaid) <
               std::tuple(b.host, b.gpu.rank, b.gpu.dev, b.cpu.numaid);
    });
    if (int64_t(nodes.size()) * copies > ranks_most)
        return fail(error::topology_placement, "{} hosts of {} ranks are too many ranks", copies, nodes.size());
    Job job{{&graph}, std::vector<int>(size_t(copies), 0), {}};
    for (int copy = 0; copy < copies; ++copy)
        for (const int node : nodes) job.locations.push_back({copy, node, unknown, unknown});
    return job;
}

Result<Job> job_of_ranks(const Graph& graph, int copies, int ranks) {
    auto job = job_of_all(graph, copies);
    if (!job) return job;
    if (job->locations.empty())
        return fail(error::topology_placement, "the machine has neither a GPU nor a cpu for ranks");
    std::vector<RankLocation> cores;  // of the first copy, or its GPUs
    const bool threads = graph.node(job->locations[0].node).kind == NodeKind::cpu;
    for (size_t i = 0; i < job->locations.size() / size_t(copies) && int64_t(cores.size()) < ranks_most; ++i) {
        const int node = job->locations[i].node, count = threads ? cores_of(graph.node(node).cpu) : 1;
        for (int core = 0; core < count; ++core) cores.push_back({0, node, unknown, threads ? core : unknown});
    }
    const int most = int(cores.size());
    if (ranks > most)
        return fail(error::topology_placement, "{} ranks do not fit on a machine with {} {}", ranks, most,
                    threads ? "cores" : "GPUs");
    if (ranks == 0) ranks = most;
    if (int64_t(ranks) * copies > ranks_most)
        return fail(error::topology_placement, "{} hosts of {} ranks are too many ranks", copies, ranks);
    job->locations.clear();
    for (int copy = 0; copy < copies; ++copy)
        for (int rank = 0; rank < ranks; ++rank) {
            job->locations.push_back(cores[size_t(threads ? int64_t(rank) * most / ranks : rank)]);
            job->locations.back().host_set = copy;
        }
    return job;
}

}  // namespace weft::internal::topology
