// simulated_links.hpp: the links of a fabric that a simulation uses, as flows see them. Links that one turn maps onto each
// other (symmetry.hpp) are one link.
#pragma once
#include <unordered_map>
#include <vector>

#include "src/simulator/fabric.hpp"
#include "src/simulator/flows.hpp"
#include "src/simulator/simulation.hpp"

namespace weft::internal {

class SimulatedLinks {
  public:
    // The first `period` of the fabric's ranks are simulated.
    SimulatedLinks(const Fabric& fabric, int period, EventQueue& events);
    // Reports every change of a load to the call's observer. The call must outlive this.
    void observe(const SimulatedCall& call);

    Flows& flows() { return flows_; }
    int path_of(const Route& route);
    // The path for reads by `rank` of the memory of `owner`; -1: no route, which failure() names.
    int reading_path(int rank, int owner);
    int local_path(int rank);
    // ok() unless a path did not exist.
    Status take_failure() { return std::move(failure_); }
    bool failed() const { return !failure_.ok(); }
    std::vector<LinkUse> uses(double now_us) const;

  private:
    int link(int of_fabric);
    int stays(int of_fabric) const;  // Fabric::Turned
    int path_within(int rank, int owner, const Route& route);

    const Fabric& fabric_;
    const int period_;
    Flows flows_;
    std::unordered_map<int, int> link_of_;  // numbers of the fabric's links, turned
    std::vector<int> fabric_link_;          // by number here
    std::unordered_map<uint64_t, int> reading_of_;
    Status failure_;
};

}  // namespace weft::internal
