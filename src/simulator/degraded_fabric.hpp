// degraded_fabric.hpp: a fabric with slow links, ranks or hosts, or with failed links. A message over a failed link
// takes another route if the fabric knows one. Such a fabric has no symmetry.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/simulator/fabric.hpp"

namespace weft::internal {

struct Faults {
    std::map<int, double> slow_links, slow_ranks;  // factors by which they are slower
    std::vector<int> failed_links;
    bool none() const { return slow_links.empty() && slow_ranks.empty() && failed_links.empty(); }
};

// The fabric must outlive it.
class DegradedFabric : public Fabric {
  public:
    DegradedFabric(const Fabric& whole, Faults faults);

    int ranks() const override { return now().ranks(); }
    const RankCosts& costs() const override { return now().costs(); }
    int links() const override { return now().links(); }
    double bytes_per_us(int link) const override;
    std::string link_name(int link) const override { return now().link_name(link); }
    Route route(int from, int to) const override { return checked(now().route(from, to)); }
    Route local(int rank) const override { return checked(now().local(rank)); }
    Route reading(int rank, int owner) const override { return checked(now().reading(rank, owner)); }
    double slowness(int rank) const override;

  private:
    const Fabric& now() const { return around_ ? *around_ : whole_; }
    Route checked(Route route) const;

    const Fabric& whole_;
    const Faults faults_;
    const std::unique_ptr<Fabric> around_;  // null: only the old routes are known
};

// weftInvalidArgument: no link has this name; the sentence names some links.
Result<int> link_named(const Fabric& fabric, const std::string& name);

}  // namespace weft::internal
