#include "topology/fabric/graph_fabric.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

constexpr double bytes_per_us_of_gbs = 1000;

double width_of(const RoutingGraph& fabric, const PricedRoute& route) {
    double width = infinite;
    for (const int arc : route.arcs) width = std::min(width, fabric.arcs()[size_t(arc)].gbs);
    return width;
}

}  // namespace

const HostKind& host_kind_like(const Graph& graph) {
    const std::vector<int> gpus = graph.of_kind(NodeKind::gpu);
    int sm = unknown;
    for (const int gpu : gpus) sm = std::max(sm, graph.node(gpu).gpu.sm);
    return *find_host_kind(gpus.empty() ? "cpu-10g" : sm >= 100 ? "dgx-b200" : sm >= 90 ? "dgx-h100" : "dgx-a100");
}

GraphFabric::MachineRoutes::MachineRoutes(const MachineGraph& machine_graph, const std::vector<int>& failed)
    : fabric(machine_graph) {
    std::vector<double> prices;
    for (size_t arc = 0; arc < fabric.arcs().size(); ++arc)
        prices.push_back(fabric.arcs()[arc].gbs > 0 ? fabric.price_of(int(arc)) : infinite);
    for (const int arc : failed) prices[size_t(arc)] = infinite;
    int64_t steps = 0;
    for (size_t site = 0; site < fabric.sites().size(); ++site)
        within.push_back(fabric.routes(int(site), RouteScope::within, prices, -1, steps));
    find_ports(prices);
}

// For each port, the routes of all sites to it and from it; each site takes one of these.
void GraphFabric::MachineRoutes::find_ports(const std::vector<double>& prices) {
    const size_t sites = fabric.sites().size();
    int64_t steps = 0;
    std::vector<std::vector<PricedRoute>> to_port(sites), from_port(sites);
    for (const int port : fabric.ports()) {
        std::vector<PricedRoute> arriving = fabric.routes(int(sites), RouteScope::arriving, prices, port, steps);
        for (size_t site = 0; site < sites; ++site) {
            to_port[site].push_back(fabric.routes(int(site), RouteScope::leaving, prices, port, steps).back());
            from_port[site].push_back(std::move(arriving[site]));
        }
    }
    const auto best = [&](std::vector<PricedRoute>& ways, size_t site) {
        const auto rank = [&](const PricedRoute& way) {
            return std::tuple(way.price == infinite, -width_of(fabric, way), way.price);
        };
        std::stable_sort(ways.begin(), ways.end(),
                         [&](const PricedRoute& one, const PricedRoute& other) { return rank(one) < rank(other); });
        const auto equal =
            std::find_if(ways.begin(), ways.end(), [&](const PricedRoute& way) { return rank(way) != rank(ways[0]); });
        const size_t alike = size_t(equal - ways.begin());
        return ways.empty() ? PricedRoute{infinite, {}, PathClass::none} : std::move(ways[site % alike]);
    };
    for (size_t site = 0; site < sites; ++site) {
        out.push_back(best(to_port[site], site));
        in.push_back(best(from_port[site], site));
    }
}

Result<GraphFabric> GraphFabric::make(const Job& job, const HostKind& kind) {
    auto placement = place(job);
    if (!placement) return placement.take_status();
    return GraphFabric(kind, *placement, job);
}

GraphFabric::GraphFabric(const HostKind& kind, const Placement& placement, const Job& job)
    : kind_(kind), costs_(rank_costs_of(kind, int(placement.machines.size()))), positions_(job.locations.size()) {
    std::vector<std::shared_ptr<const MachineRoutes>> routes;
    for (const MachineKind& each : placement.kinds) {
        machine_graphs_.push_back(each.machine_graph);
        routes.push_back(std::make_shared<const MachineRoutes>(each.machine_graph, std::vector<int>()));
    }
    int first_link = 0;
    for (const PlacedMachine& placed : placement.machines) {
        Machine& machine = machines_.emplace_back();
        machine.routes = routes[size_t(placed.kind)];
        machine.kind = placed.kind;
        machine.first_link = first_link;
        for (size_t site = 0; site < placed.ranks.size(); ++site)
            for (const int32_t rank : placed.ranks[site]) {
                positions_[size_t(rank)] = {int(machines_.size()) - 1, int(site), int(machine.ranks.size())};
                machine.ranks.push_back(rank);
            }
        first_link += links_of(machine);
    }
    std::map<std::pair<int, int>, int32_t> numbers;  // by host set and host
    for (const RankLocation& location : job.locations) {
        const int host = job.graphs[size_t(job.graph_of[size_t(location.host_set)])]->node(location.node).host;
        hosts_.push_back(numbers.try_emplace({location.host_set, host}, int32_t(numbers.size())).first->second);
    }
    if (numbers.size() == 1) hosts_.clear();
    find_rotation();
}

void GraphFabric::find_rotation() {
    rotation_ = ranks();
    const int turn = int(machines_[0].ranks.size()) * machines_a_turn_;
    if (machines_.size() % size_t(machines_a_turn_) != 0 || machines_.size() == size_t(machines_a_turn_)) return;
    for (int rank = 0; rank < ranks(); ++rank) {
        const RankPosition &one = positions_[size_t(rank)], &other = positions_[size_t(rank % turn)];
        if (one.machine != other.machine + rank / turn * machines_a_turn_ || one.place != other.place ||
            machines_[size_t(one.machine)].routes != machines_[0].routes)
            return;
    }
    rotation_ = turn;
}

void GraphFabric::turn_by_two() {
    machines_a_turn_ = 2;
    find_rotation();
}

weft::internal::Fabric::Turned GraphFabric::turned(int link) const {
    return {rotation_ == ranks() ? link : link % (machines_a_turn_ * links_of(machines_[0])), 1};
}

const GraphFabric::Machine& GraphFabric::machine_of_link(int link) const {
    const auto behind =
        std::upper_bound(machines_.begin(), machines_.end(), link,
                         [](int number, const Machine& machine) { return number < machine.first_link; });
    return behind[-1];
}

double GraphFabric::bytes_per_us(int link) const {
    const Machine& machine = machine_of_link(link);
    const int number = link - machine.first_link, arcs = arcs_of(machine);
    if (number < arcs)
        return machine.routes->fabric.arcs()[size_t(number)].gbs * bytes_per_us_of_gbs * kind_.efficiency;
    return number < arcs + sites_of(machine) ? kind_.memory_bytes_per_us : kind_.peer_bytes_per_us;
}

std::string GraphFabric::link_name(int link) const {
    const Machine& machine = machine_of_link(link);
    const RoutingGraph& fabric = machine.routes->fabric;
    const int number = link - machine.first_link, arcs = arcs_of(machine), sites = sites_of(machine);
    if (number >= arcs + sites) return fmt::format("core of rank {}", machine.ranks[size_t(number - arcs - sites)]);
    const std::string where = machines_.size() > 1 ? fmt::format(" of machine {}", &machine - machines_.data()) : "";
    if (number >= arcs)
        return fmt::format("memory of {}{}", fabric.graph().name(fabric.sites()[size_t(number - arcs)]), where);
    const Arc& arc = fabric.arcs()[size_t(number)];
    return fmt::format("{} from {} to {}{}", name_of(arc.kind), fabric.graph().name(arc.source),
                       fabric.graph().name(arc.target), where);
}

int32_t GraphFabric::memory_of(const RankPosition& location) const {
    const Machine& machine = machines_[size_t(location.machine)];
    return machine.first_link + arcs_of(machine) + location.site;
}

int32_t GraphFabric::core_of(const RankPosition& location) const {
    const Machine& machine = machines_[size_t(location.machine)];
    return machine.first_link + arcs_of(machine) + sites_of(machine) + location.place;
}

void GraphFabric::add(weft::internal::Route& route, const Machine& machine, const PricedRoute& way) const {
    if (way.price == infinite) route.exists = false;
    for (const int arc : way.arcs) {
        route.links.push_back(machine.first_link + arc);
        const LinkKind kind = machine.routes->fabric.arcs()[size_t(arc)].kind;
        if (kind != LinkKind::nvlink) route.latency_us += latency_us(kind);
    }
}

// Only of the links between the two locations.
void GraphFabric::add_way(weft::internal::Route& route, const RankPosition& from, const RankPosition& to) const {
    const Machine &source = machines_[size_t(from.machine)], &target = machines_[size_t(to.machine)];
    const PricedRoute& near = source.routes->within[size_t(from.site)][size_t(to.site)];
    if (from.machine == to.machine && near.price < infinite) {
        route.latency_us = kind_.peer_us;
        route.bytes_per_us = kind_.connection_bytes_per_us;
        add(route, source, near);
    } else {
        route.latency_us = kind_.net_us;
        route.overhead_us = kind_.net_overhead_us;
        route.carrier_us = carrier_us_of(kind_);
        route.driven = false;
        add(route, source, source.routes->out[size_t(from.site)]);
        add(route, target, target.routes->in[size_t(to.site)]);
    }
    route.credit_us = route.latency_us;
}

weft::internal::Route GraphFabric::route(int from, int to) const {
    const RankPosition &source = positions_[size_t(from)], &target = positions_[size_t(to)];
    weft::internal::Route route;
    add_way(route, source, target);
    if (kind_.devices || !route.driven) return route;
    route.links.push_back(core_of(source));
    route.links.push_back(memory_of(source));
    if (source.site != target.site) route.links.push_back(memory_of(target));
    return route;
}

weft::internal::Route GraphFabric::local(int rank) const {
    const RankPosition& location = positions_[size_t(rank)];
    weft::internal::Route route{.links = {memory_of(location)}};
    if (!kind_.devices) route.links.push_back(core_of(location));
    return route;
}

weft::internal::Route GraphFabric::reading(int rank, int owner) const {
    const RankPosition &reader = positions_[size_t(rank)], &source = positions_[size_t(owner)];
    weft::internal::Route route;
    add_way(route, source, reader);
    if (kind_.devices) return route;
    route.links.push_back(core_of(reader));
    route.links.push_back(memory_of(source));
    if (source.site != reader.site) route.links.push_back(memory_of(reader));
    return route;
}

std::unique_ptr<weft::internal::Fabric> GraphFabric::around(const std::vector<int>& links) const {
    std::map<const Machine*, std::vector<int>> failed;
    for (const int link : links) {
        const Machine& machine = machine_of_link(link);
        if (link - machine.first_link < arcs_of(machine)) failed[&machine].push_back(link - machine.first_link);
    }
    std::unique_ptr<GraphFabric> found(new GraphFabric(*this));
    for (const auto& [machine, arcs] : failed)
        found->machines_[size_t(machine - machines_.data())].routes =
            std::make_shared<const MachineRoutes>(machine_graphs_[size_t(machine->kind)], arcs);
    found->rotation_ = ranks();
    return found;
}

Job GraphFabric::job_without(const Job& job, const std::vector<int>& links,
                             std::vector<std::unique_ptr<const Graph>>& graphs) const {
    std::map<int, std::unique_ptr<Graph>> cut;  // by host set
    for (const int link : links) {
        const Machine& machine = machine_of_link(link);
        if (link - machine.first_link >= arcs_of(machine)) continue;
        const Arc& arc = machine.routes->fabric.arcs()[size_t(link - machine.first_link)];
        const int host_set = job.locations[size_t(machine.ranks.front())].host_set;
        std::unique_ptr<Graph>& graph = cut[host_set];
        if (!graph) graph = std::make_unique<Graph>(*job.graphs[size_t(job.graph_of[size_t(host_set)])]);
        graph->cut(arc.source, arc.target, arc.kind);
    }
    Job left = job;
    for (auto& [host_set, graph] : cut) {
        left.graph_of[size_t(host_set)] = int(left.graphs.size());
        left.graphs.push_back(graph.get());
        graphs.push_back(std::move(graph));
    }
    return left;
}

std::vector<int32_t> GraphFabric::hosts() const { return hosts_; }

}  // namespace weft::internal::topology
