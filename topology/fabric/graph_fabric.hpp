// graph_fabric.hpp: graphs of machines as fabrics of the simulator. Each direction of a link of a graph is a link that
// messages share, so narrow PCI switches, bridges, NICs of single GPUs and unequal links count. Between machines only
// the ports and the links to them have limits.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/simulator/hosts_fabric.hpp"
#include "topology/search/job.hpp"
#include "topology/search/routing_graph.hpp"

namespace weft::internal::topology {

// The row of host_kinds() with the speed of devices (or cpus) like those of the graph.
const HostKind& host_kind_like(const Graph& graph);

// Within a machine a message takes the cheapest route of the channel search (routing_graph.hpp). To other machines a
// rank takes the widest route to a port, then the nearest; equal ports are used in turn, in both directions. A rank on
// a cpu is a thread on its own core, and the ranks of a cpu share its memory.
class GraphFabric : public weft::internal::Fabric {
  public:
    // `kind` gives the bandwidths of cores and memory, which are no links of the graph, and the times of steps and of
    // paths over NVLink or within a cpu. Other links add their latency. weftInvalidArgument: as place(). The graphs of
    // the job must outlive it.
    static Result<GraphFabric> make(const Job& job, const HostKind& kind);

    int ranks() const override { return int(positions_.size()); }
    const RankCosts& costs() const override { return costs_; }
    int links() const override { return machines_.back().first_link + links_of(machines_.back()); }
    double bytes_per_us(int link) const override;
    std::string link_name(int link) const override;
    weft::internal::Route route(int from, int to) const override;
    weft::internal::Route local(int rank) const override;
    weft::internal::Route reading(int rank, int owner) const override;
    std::unique_ptr<weft::internal::Fabric> around(const std::vector<int>& links) const override;
    // The job of this fabric without these links. A machine that loses one gets its own graph in `graphs`, which must
    // outlive the job.
    Job job_without(const Job& job, const std::vector<int>& links,
                    std::vector<std::unique_ptr<const Graph>>& graphs) const;
    // One machine, if all are equal and have consecutive ranks; within one machine all ranks.
    int rotation() const override { return rotation_; }
    Turned turned(int link) const override;

    // If every second machine is passed in reverse order (Channels::alternates), a turn is two machines.
    void turn_by_two();
    std::vector<int32_t> hosts() const;  // by rank, as in Layout; empty: one host

  private:
    // Of all machines of one kind, or of one machine that has lost links.
    struct MachineRoutes {
        MachineRoutes(const MachineGraph& machine_graph, const std::vector<int>& failed);
        void find_ports(const std::vector<double>& prices);

        RoutingGraph fabric;
        std::vector<std::vector<PricedRoute>> within;  // from site to site
        std::vector<PricedRoute> out, in;              // of each site: to a port, and from one
    };
    struct Machine {
        std::shared_ptr<const MachineRoutes> routes;
        int kind = 0, first_link = 0;
        std::vector<int32_t> ranks;  // in the order of its sites
    };
    struct RankPosition {
        int machine, site;
        int place;  // index among the machine's ranks
    };

    GraphFabric(const HostKind& kind, const Placement& placement, const Job& job);
    void find_rotation();
    // Links of a machine: those of the graph, the memory of each site, and the core of each rank that is a thread.
    int arcs_of(const Machine& machine) const { return int(machine.routes->fabric.arcs().size()); }
    int sites_of(const Machine& machine) const { return int(machine.routes->fabric.sites().size()); }
    int links_of(const Machine& machine) const {
        return arcs_of(machine) + sites_of(machine) + (kind_.devices ? 0 : int(machine.ranks.size()));
    }
    const Machine& machine_of_link(int link) const;
    int32_t memory_of(const RankPosition& location) const;
    int32_t core_of(const RankPosition& location) const;
    void add(weft::internal::Route& route, const Machine& machine, const PricedRoute& way) const;
    void add_way(weft::internal::Route& route, const RankPosition& from, const RankPosition& to) const;

    HostKind kind_;
    RankCosts costs_;
    std::vector<MachineGraph> machine_graphs_;  // by kind of machine
    std::vector<Machine> machines_;
    std::vector<RankPosition> positions_;  // by rank
    std::vector<int32_t> hosts_;
    int rotation_ = 0, machines_a_turn_ = 1;
};

}  // namespace weft::internal::topology
