// two_level.hpp: an all-reduce over hosts made of two: one among the hosts, embedded in one over each host's board.
#pragma once
#include "algorithms/algorithm.hpp"

namespace weft {

struct TwoLevel {
    const char* name;
    Schedule (*between_hosts)(const Layout& layout, const Parameters& parameters);  // of connections alone
    double (*between_hosts_us)(const Layout& layout, const LinkCosts& costs, size_t bytes);
    int owners_most;  // ranks of a host that talk to other hosts, each for its share; at most as many as any host has
};

Schedule two_level_all_reduce(const TwoLevel& levels, const Layout& layout, const Parameters& parameters);
double two_level_all_reduce_us(const TwoLevel& levels, const Layout& layout, const LinkCosts& costs, size_t bytes);

// What the part between hosts sees of a layout: a rank for each host.
Layout layout_of_hosts(const Layout& layout);

}  // namespace weft
