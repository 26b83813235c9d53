#include "src/simulator/simulated_links.hpp"

#include <algorithm>

namespace weft::internal {

SimulatedLinks::SimulatedLinks(const Fabric& fabric, int period, EventQueue& events)
    : fabric_(fabric), period_(period), flows_(events) {}

void SimulatedLinks::observe(const SimulatedCall& call) {
    flows_.observe([this, &call](int link, double at_us, double bytes_per_us) {
        const int of_fabric = fabric_link_[size_t(link)];
        call.observe_load({of_fabric, at_us, bytes_per_us * stays(of_fabric)});
    });
}

int SimulatedLinks::stays(int of_fabric) const {
    return period_ == fabric_.ranks() ? 1 : fabric_.turned(of_fabric).stays;
}

// The number of the link here. Links of one turn are one, which carries its share of the load of all.
int SimulatedLinks::link(int of_fabric) {
    const bool whole = period_ == fabric_.ranks();
    const Fabric::Turned turned = whole ? Fabric::Turned{of_fabric, 1} : fabric_.turned(of_fabric);
    const auto [place, fresh] = link_of_.try_emplace(turned.link, int(fabric_link_.size()));
    if (fresh) {
        fabric_link_.push_back(turned.link);
        flows_.add_link(fabric_.bytes_per_us(turned.link) / turned.stays);
    }
    return place->second;
}

int SimulatedLinks::path_of(const Route& route) {
    std::vector<int32_t> links;
    for (const int32_t each : route.links) links.push_back(link(each));
    return flows_.add_path(links);
}

int SimulatedLinks::reading_path(int rank, int owner) {
    const auto [place, fresh] = reading_of_.try_emplace(uint64_t(uint32_t(rank)) << 32 | uint32_t(owner), -1);
    if (fresh) place->second = path_within(rank, owner, fabric_.reading(rank, owner));
    return place->second;
}

int SimulatedLinks::path_within(int rank, int owner, const Route& route) {
    if (!route.exists && failure_.ok())
        failure_ = fail(error::schedule_fabric, "no route connects rank {} to the memory of rank {}", rank, owner);
    return path_of(route);
}

int SimulatedLinks::local_path(int rank) { return path_within(rank, rank, fabric_.local(rank)); }

std::vector<LinkUse> SimulatedLinks::uses(double now_us) const {
    std::vector<LinkUse> uses;
    const int turns = fabric_.ranks() / period_;
    for (size_t number = 0; number < fabric_link_.size(); ++number) {
        const Flows::LinkLoad& use = flows_.use(int(number));
        if (use.bytes == 0) continue;
        const int its_stays = stays(fabric_link_[number]);
        const double bytes = use.bytes * its_stays;
        uses.push_back({fabric_link_[number], turns / its_stays, bytes, use.busy_us / now_us,
                        bytes / (fabric_.bytes_per_us(fabric_link_[number]) * now_us)});
    }
    std::stable_sort(uses.begin(), uses.end(), [](const LinkUse& one, const LinkUse& other) {
        return one.load != other.load ? one.load > other.load : one.link < other.link;
    });
    return uses;
}

}  // namespace weft::internal
