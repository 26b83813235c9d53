#include "src/simulator/degraded_fabric.hpp"

#include <algorithm>
#include <utility>

namespace weft::internal {

namespace {

double factor_of(const std::map<int, double>& slow, int which) {
    const auto found = slow.find(which);
    return found == slow.end() ? 1 : found->second;
}

}  // namespace

DegradedFabric::DegradedFabric(const Fabric& whole, Faults faults)
    : whole_(whole),
      faults_(std::move(faults)),
      around_(faults_.failed_links.empty() ? nullptr : whole.around(faults_.failed_links)) {}

double DegradedFabric::bytes_per_us(int link) const {
    return now().bytes_per_us(link) / factor_of(faults_.slow_links, link);
}

double DegradedFabric::slowness(int rank) const { return now().slowness(rank) * factor_of(faults_.slow_ranks, rank); }

Route DegradedFabric::checked(Route route) const {
    const auto& failed = faults_.failed_links;
    if (std::any_of(route.links.begin(), route.links.end(),
                    [&](int link) { return std::find(failed.begin(), failed.end(), link) != failed.end(); }))
        route.exists = false;
    return route;
}

Result<int> link_named(const Fabric& fabric, const std::string& name) {
    constexpr int named_most = 4;
    for (int link = 0; link < fabric.links(); ++link)
        if (fabric.link_name(link) == name) return link;
    std::string some;
    for (int link = 0; link < std::min(named_most, fabric.links()); ++link)
        some += fmt::format("{}`{}`", some.empty() ? "" : ", ", fabric.link_name(link));
    return fail(error::schedule_fabric,
                "link `{}` does not exist; the table of busiest links shows the names, such as {}", name, some);
}

}  // namespace weft::internal
