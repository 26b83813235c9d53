#include "topology/model/paths.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "topology/model/notes.hpp"
#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

constexpr size_t relays_most = 32;  // of a host: twice the number of GPUs of the largest one

bool better(const Path& a, const Path& b) {
    return std::tuple(a.path_class, -a.bandwidth_gbs, a.hops, a.latency_us) <
           std::tuple(b.path_class, -b.bandwidth_gbs, b.hops, b.latency_us);
}

// For ports, the bandwidth through them counts.
bool wider(const Path& a, const Path& b) {
    return std::tuple(-a.bandwidth_gbs, a.path_class, a.hops, a.latency_us) <
           std::tuple(-b.bandwidth_gbs, b.path_class, b.hops, b.latency_us);
}

Path joined(const Path& a, const Path& b, PathClass path_class, int through) {
    return {path_class, a.hops + b.hops,       std::min(a.bandwidth_gbs, b.bandwidth_gbs), a.latency_us + b.latency_us,
            through,    a.assumed || b.assumed};
}

}  // namespace

Paths::Paths(const Graph& graph, PathOptions options)
    : graph_(graph), options_(options), links_(graph), ports_(graph.hosts().size()) {
    for (const int port : graph.of_kind(NodeKind::port)) ports_[size_t(graph.node(port).host)].push_back(port);
    if (options_.net && graph.hosts().size() > 1) find_arrivals();
    if (options_.pxn) note_relays();
}

// A host is reached by the port that is best for the node. If there are more ports than a search of a second or two can
// handle, only the fastest are tried.
void Paths::find_arrivals() {
    arrival_port_.assign(graph_.nodes().size(), -1);
    arrival_.resize(graph_.nodes().size());
    for (auto ports : ports_) {
        if (ports.empty()) continue;
        const size_t visits_most = options_.visits_most / ports_.size(), visits = links_.island_of(ports[0]).size();
        const size_t tried = std::max<size_t>(1, visits_most / visits);
        if (ports.size() > tried) {
            say(notes_, "host {} has {} ports: paths from other hosts arrive only at its {} fastest",
                graph_.node(ports[0]).host, ports.size(), tried);
            std::stable_sort(ports.begin(), ports.end(), [&](int one, int other) {
                return port_speed(graph_.node(one).port).bandwidth_gbs >
                       port_speed(graph_.node(other).port).bandwidth_gbs;
            });
            ports.resize(tried);
        }
        for (const int port : ports) add_arrivals(port);
    }
}

void Paths::add_arrivals(int port) {
    const std::vector<Path> row = links_.from(port);
    const double port_gbs = port_speed(graph_.node(port).port).bandwidth_gbs;
    for (size_t place = 0; place < row.size(); ++place) {
        const size_t node = size_t(links_.island_of(port)[place]);
        if (row[place].path_class == PathClass::none || graph_.node(int(node)).host != graph_.node(port).host) continue;
        Path path = row[place];
        path.bandwidth_gbs = std::min(path.bandwidth_gbs, port_gbs);
        if (arrival_port_[node] >= 0 && !wider(path, arrival_[node])) continue;
        arrival_port_[node] = port;
        arrival_[node] = path;
    }
}

void Paths::note_relays() {
    std::vector<size_t> gpus(graph_.hosts().size());
    for (const int gpu : graph_.of_kind(NodeKind::gpu)) ++gpus[size_t(graph_.node(gpu).host)];
    for (size_t host = 0; host < gpus.size(); ++host)
        if (gpus[host] > relays_most + 1)
            say(notes_, "host {} has {} GPUs: PXN is tried through {} of them", host, gpus[host], relays_most);
}

void Paths::add_nvb(int source, std::vector<Path>& row) const {
    const std::vector<int>& island = links_.island_of(source);
    const auto is_nvlink = [&](const PathEdge& edge) {
        return edge.kind == LinkKind::nvlink && graph_.node(island[size_t(edge.target)]).kind == NodeKind::gpu;
    };
    if (graph_.node(source).kind != NodeKind::gpu) return;
    for (const PathEdge& first : links_.edges(source)) {
        if (!is_nvlink(first)) continue;
        const int through = island[size_t(first.target)];
        for (const PathEdge& second : links_.edges(through)) {
            const int target = island[size_t(second.target)];
            if (!is_nvlink(second) || target == source) continue;
            const Path path{PathClass::nvb,
                            2,
                            std::min(first.bandwidth_gbs, second.bandwidth_gbs),
                            first.latency_us + second.latency_us,
                            through,
                            first.assumed || second.assumed};
            if (better(path, row[size_t(target)])) row[size_t(target)] = path;
        }
    }
}

void Paths::add_p2c(int source, std::vector<Path>& row) const {
    const auto is_nic = [](NodeKind kind) { return kind == NodeKind::nic || kind == NodeKind::port; };
    const NodeKind from = graph_.node(source).kind;
    if (!links_.has_c2c() || (from != NodeKind::gpu && !is_nic(from))) return;
    const std::vector<Path> found = links_.from(source, PathClass::phb, true);
    for (size_t place = 0; place < found.size(); ++place) {
        const int target = links_.island_of(source)[place];
        const NodeKind to = graph_.node(target).kind;
        Path path = found[place];
        if (path.path_class != PathClass::phb || !(from == NodeKind::gpu ? is_nic(to) : to == NodeKind::gpu)) continue;
        path.path_class = PathClass::p2c;
        if (better(path, row[size_t(target)])) row[size_t(target)] = path;
    }
}

void Paths::add_pxn(int source, std::vector<Path>& row) const {
    const Node& from = graph_.node(source);
    if (from.kind != NodeKind::gpu && from.kind != NodeKind::port) return;
    const bool out = from.kind == NodeKind::gpu;
    const PathClass first_worst = out ? PathClass::nvl : PathClass::pxb;
    const PathClass second_worst = out ? PathClass::pxb : PathClass::nvl;
    const NodeKind target_kind = out ? NodeKind::port : NodeKind::gpu;
    const std::vector<int>& island = links_.island_of(source);
    const auto is_ours = [&](int node, NodeKind kind) {
        return graph_.node(node).kind == kind && graph_.node(node).host == from.host;
    };
    const std::vector<Path> first = links_.from(source, first_worst);
    size_t relays = 0;
    for (size_t relay = 0; relay < first.size() && relays < relays_most; ++relay) {
        const int gpu = island[relay];
        if (!is_ours(gpu, NodeKind::gpu) || gpu == source || first[relay].path_class > first_worst) continue;
        ++relays;
        const std::vector<Path> second = links_.from(gpu, second_worst);
        for (size_t place = 0; place < second.size(); ++place) {
            const int target = island[place];
            if (!is_ours(target, target_kind) || second[place].path_class > second_worst || target == gpu) continue;
            const Path path = joined(first[relay], second[place], PathClass::pxn, gpu);
            if (better(path, row[size_t(target)])) row[size_t(target)] = path;
        }
    }
}

int Paths::port_for(int source, const std::vector<Path>& row) const {
    const int host = graph_.node(source).host;
    int best = -1;
    if (host < 0) return best;
    for (const int port : ports_[size_t(host)]) {
        if (row[size_t(port)].path_class == PathClass::none) continue;
        if (best < 0 || wider(row[size_t(port)], row[size_t(best)])) best = port;
    }
    return graph_.node(source).kind == NodeKind::port ? source : best;
}

void Paths::add_net(int source, std::vector<Path>& row) const {
    const int port = port_for(source, row);
    if (arrival_.empty() || port < 0) return;
    const int host = graph_.node(source).host;
    const Port& leaving = graph_.node(port).port;
    Path out = row[size_t(port)];
    const Speed speed = port_speed(leaving);
    out.bandwidth_gbs = std::min(out.bandwidth_gbs, speed.bandwidth_gbs);
    out.assumed |= speed.assumed;
    for (size_t node = 0; node < row.size(); ++node) {
        if (row[node].path_class != PathClass::none || arrival_port_[node] < 0 || graph_.node(int(node)).host == host)
            continue;
        const Port& arriving = graph_.node(arrival_port_[node]).port;
        row[node] = joined(out, arrival_[node], PathClass::net, -1);
        row[node].hops += 1;
        row[node].latency_us += std::max(network_latency_us(leaving), network_latency_us(arriving));
        row[node].assumed |= port_speed(arriving).assumed;
    }
}

std::vector<Path> Paths::from(int source) const {
    std::vector<Path> row(graph_.nodes().size());
    const std::vector<Path> near = links_.from(source);
    for (size_t place = 0; place < near.size(); ++place) row[size_t(links_.island_of(source)[place])] = near[place];
    if (options_.nvb) add_nvb(source, row);
    add_p2c(source, row);
    if (options_.pxn) add_pxn(source, row);
    if (options_.net) add_net(source, row);
    return row;
}

std::vector<int> Paths::route(int source, int target) const {
    const std::vector<Path> row = from(source);
    const Path& path = row[size_t(target)];
    if (path.path_class == PathClass::none) return {};
    std::vector<int> nodes;
    const auto append = [&](const std::vector<int>& more) {
        for (const int node : more)
            if (nodes.empty() || nodes.back() != node) nodes.push_back(node);
    };
    if (path.path_class == PathClass::net) {
        const int arrival = arrival_port_[size_t(target)];
        const int port = port_for(source, row);
        append(route(source, port));
        append(links_.route(arrival, target));
    } else if (path.path_class == PathClass::nvb) {
        nodes = {source, path.through, target};  // not through a switch, if there is also one
    } else if (path.path_class == PathClass::pxn) {
        append(links_.route(source, path.through));
        append(links_.route(path.through, target));
    } else {
        append(links_.route(source, target, path.path_class == PathClass::p2c));
    }
    return nodes;
}

}  // namespace weft::internal::topology
