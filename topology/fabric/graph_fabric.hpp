// graph_fabric.hpp: machines that are graphs, as the simulator sees them: each link of a graph, one way, is a link that
// messages share, so narrow PCI switches, bridges, NICs of some GPUs and unequal links count. Between machines nothing
// is narrow but ports and what leads to them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "src/simulator/hosts_fabric.hpp"
#include "topology/search/job.hpp"
#include "topology/search/routing_graph.hpp"

namespace weft::internal::topology {

// What devices, or cpus, like the graph's do by themselves: a row of host_kinds().
const HostKind& host_kind_like(const Graph& graph);

// Within a machine messages go the cheapest way in the search's sense (fabric.hpp), nearest links first. To other
// machines ranks take the widest way to a port, of those the nearest, of equal ones in turns; and so back. A rank on a
// cpu is a thread of its own on a core; the cpu's ranks share its memory.
class GraphFabric : public weft::internal::Fabric {
  public:
    // Its bandwidths count for what is no link of the graph: cores and memory; its times for steps and ways over
    // NVLink or within a cpu; other links add their latency. weftInvalidArgument: what place() says. The job's graphs
    // must outlive it.
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
    // The job that this is the fabric of, where these links are gone. Of machines that lose one it has a graph of their
    // own, in `graphs`, which must outlive it.
    Job job_without(const Job& job, const std::vector<int>& links,
                    std::vector<std::unique_ptr<const Graph>>& graphs) const;
    // By machines where all are alike and their ranks side by side; of one machine all ranks.
    int rotation() const override { return rotation_; }
    Turned turned(int link) const override;

    // Where each second machine is passed the other way round (Channels::alternates), two of them are one turn.
    void turn_by_two();
    std::vector<int32_t> hosts() const;  // by rank, as Layout has it; empty: one

  private:
    // Of all machines of one kind; or of one, some of whose links are gone.
    struct MachineRoutes {
        MachineRoutes(const MachineGraph& machine_graph, const std::vector<int>& failed);
        void find_ports(const std::vector<double>& prices);

        RoutingGraph fabric;
        std::vector<std::vector<PricedRoute>> within;  // from site to site
        std::vector<PricedRoute> out, in;              // of each site, to a port and from one
    };
    struct Machine {
        std::shared_ptr<const MachineRoutes> routes;
        int kind = 0, first_link = 0;
        std::vector<int32_t> ranks;  // in the order of its links
    };
    struct RankPosition {
        int machine, site;
        int place;  // among the machine's ranks
    };

    GraphFabric(const HostKind& kind, const Placement& placement, const Job& job);
    void find_rotation();
    // Links of a machine: the graph's, the memory of each site, the core of each rank that is a thread.
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
