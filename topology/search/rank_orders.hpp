// rank_orders.hpp: channels in the form for algorithms: the order of the job's ranks in each ring, and the parent of
// each rank in each tree.
#pragma once
#include <cstdint>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::topology {

// Of each channel, in the form of Layout::ring_orders. The ranks of a machine are consecutive.
std::vector<std::vector<int32_t>> ring_orders(const Channels& channels);

struct RankTree {
    std::vector<int32_t> parent;  // by rank; -1 for the root
};

// Of each channel: within a machine the chain of its ring. Between machines a binary tree of the ranks beside the NICs
// at which the chains begin, on one rail if machines are equal. Channels come in mirrored pairs: a rank with children
// in one tree is a leaf in the other.
std::vector<RankTree> trees(const Channels& channels);

// Gives a layout of the same ranks the ring orders, each from rank 0 on; none, if all equal the default. Hosts of one
// NVLink domain (Layout::domains) are consecutive. For equal machines, the search keeps rings on their rails
// (Layout::rails). For others with ranks on processors, a machine is passed in reverse order if that keeps a ring on
// its rail.
void take_rings(const Channels& channels, Layout& layout);

// How often the ring crosses from host to host, and how often of that between ranks of one rail or hosts of one domain.
struct HostCrossings {
    int all = 0, on_rail = 0, in_domain = 0;
};
HostCrossings host_crossings_of(const Layout& layout, int channel);

}  // namespace weft::internal::topology
