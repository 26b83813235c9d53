#include "topology/fabric/simulated_hosts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "topology/description.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/search/arrangement.hpp"

namespace weft::internal::topology {

namespace {

// The properties of a host beside its ranks' devices.
void count_host(const Graph& graph, SimulatedHosts& simulated) {
    int cores = 0;
    int64_t widest = 0;
    for (const int cpu : graph.of_kind(NodeKind::cpu)) cores += cores_of(graph.node(cpu).cpu);
    for (const int port : graph.of_kind(NodeKind::port))
        widest = std::max<int64_t>(widest, graph.node(port).port.speed);
    simulated.cores = simulated.cores == 0 ? cores : std::min(simulated.cores, cores);
    if (widest > 0) simulated.link_mbps = simulated.link_mbps == 0 ? widest : std::min(simulated.link_mbps, widest);
}

// The node of a host's graph that is this node of the file.
int location_in(const Graph& graph, const Node& node) {
    return node.kind == NodeKind::gpu ? graph.find(0, node.busid) : graph.find_cpu(0, node.cpu.numaid);
}

}  // namespace

Result<SimulatedHosts> simulate_hosts(const Graph& graph, int copies, int ranks) {
    if (copies > 0 && ranks % copies != 0)
        return fail(error::topology_placement, "{} ranks cannot be divided equally among {} machines", ranks, copies);
    auto seated = job_of_ranks(graph, copies, copies > 0 ? ranks / copies : 0);
    if (!seated) return seated.take_status();
    SimulatedHosts simulated;
    std::map<std::string, int> kinds;
    std::map<std::pair<int, int>, int> numbers;  // by copy and host of the file
    std::vector<std::string> domains;            // by host
    std::vector<int32_t> host_of;                // by rank
    for (const RankLocation& location : seated->locations) {
        const Node& node = graph.node(location.node);
        const auto [host, fresh] = numbers.try_emplace({location.host_set, node.host}, int(numbers.size()));
        if (fresh) {
            const std::string text = describe_host(graph, node.host);
            const auto [kind, unlike] = kinds.try_emplace(text, int(kinds.size()));
            if (unlike) {
                auto read = read_topology(text);
                if (!read) return read.take_status();
                simulated.graphs.push_back(std::make_unique<const Graph>(std::move(read->graph)));
                simulated.job.graphs.push_back(simulated.graphs.back().get());
                count_host(*simulated.graphs.back(), simulated);
            }
            simulated.job.graph_of.push_back(kind->second);
            const std::string domain = shared_domain(graph, node.host);
            domains.push_back(domain.empty() ? "" : fmt::format("{} {}", location.host_set, domain));
        }
        const int found =
            location_in(*simulated.job.graphs[size_t(simulated.job.graph_of[size_t(host->second)])], node);
        if (found < 0)
            return fail(error::topology_placement, "{} cannot be described, so no rank can run there",
                        graph.name(location.node));
        simulated.job.locations.push_back({host->second, found, location.cache, location.core});
        host_of.push_back(int32_t(host->second));
    }
    simulated.gpus = graph.node(seated->locations[0].node).kind == NodeKind::gpu;
    simulated.layout.ranks = int(simulated.job.locations.size());
    if (numbers.size() > 1) simulated.layout.hosts = std::move(host_of);
    simulated.domains = domains_of(domains);
    return simulated;
}

}  // namespace weft::internal::topology
