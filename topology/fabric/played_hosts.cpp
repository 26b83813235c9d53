#include "topology/fabric/played_hosts.hpp"

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

// What a host has beside its ranks' devices.
void count_host(const Graph& graph, PlayedHosts& played) {
    int cores = 0;
    int64_t widest = 0;
    for (const int cpu : graph.of_kind(NodeKind::cpu)) cores += cores_of(graph.node(cpu).cpu);
    for (const int port : graph.of_kind(NodeKind::port))
        widest = std::max<int64_t>(widest, graph.node(port).port.speed);
    played.cores = played.cores == 0 ? cores : std::min(played.cores, cores);
    if (widest > 0) played.link_mbps = played.link_mbps == 0 ? widest : std::min(played.link_mbps, widest);
}

// Where a host's graph has what the file's has.
int seat_in(const Graph& graph, const Node& node) {
    return node.kind == NodeKind::gpu ? graph.find(0, node.busid) : graph.find_cpu(0, node.cpu.numaid);
}

}  // namespace

Result<PlayedHosts> play_hosts(const Graph& graph, int copies, int ranks) {
    if (copies > 0 && ranks % copies != 0)
        return fail(weftInvalidArgument, "{} ranks do not fill {} machines alike", ranks, copies);
    auto seated = job_of_ranks(graph, copies, copies > 0 ? ranks / copies : 0);
    if (!seated) return seated.take_status();
    PlayedHosts played;
    std::map<std::string, int> kinds;
    std::map<std::pair<int, int>, int> numbers;  // by copy and host of the file
    std::vector<std::string> domains;            // by host
    std::vector<int32_t> host_of;                // by rank
    for (const Seat& seat : seated->seats) {
        const Node& node = graph.node(seat.node);
        const auto [host, fresh] = numbers.try_emplace({seat.host_set, node.host}, int(numbers.size()));
        if (fresh) {
            const std::string text = describe_host(graph, node.host);
            const auto [kind, unlike] = kinds.try_emplace(text, int(kinds.size()));
            if (unlike) {
                auto read = read_topology(text);
                if (!read) return read.take_status();
                played.graphs.push_back(std::make_unique<const Graph>(std::move(read->graph)));
                played.job.graphs.push_back(played.graphs.back().get());
                count_host(*played.graphs.back(), played);
            }
            played.job.graph_of.push_back(kind->second);
            const std::string domain = shared_domain(graph, node.host);
            domains.push_back(domain.empty() ? "" : fmt::format("{} {}", seat.host_set, domain));
        }
        const int found = seat_in(*played.job.graphs[size_t(played.job.graph_of[size_t(host->second)])], node);
        if (found < 0)
            return fail(weftInvalidArgument, "{} cannot be described, so that nobody could sit there",
                        graph.name(seat.node));
        played.job.seats.push_back({host->second, found, seat.cache, seat.core});
        host_of.push_back(int32_t(host->second));
    }
    played.gpus = graph.node(seated->seats[0].node).kind == NodeKind::gpu;
    played.layout.ranks = int(played.job.seats.size());
    if (numbers.size() > 1) played.layout.hosts = std::move(host_of);
    played.domains = domains_of(domains);
    return played;
}

}  // namespace weft::internal::topology
