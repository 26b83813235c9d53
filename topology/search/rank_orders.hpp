// rank_orders.hpp: channels as algorithms need them: of each ring the order of the job's ranks, of each tree who is whose
// parent.
#pragma once
#include <cstdint>
#include <vector>

#include "src/schedule/layout.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::topology {

// Of each channel; what Layout::ring_orders takes. Every machine's ranks stand side by side.
std::vector<std::vector<int32_t>> ring_orders(const Channels& channels);

struct RankTree {
    std::vector<int32_t> parent;  // by rank; of the top -1
};

// Of each channel: within a machine the chain of its ring, among machines a binary tree of the ranks next to the NICs
// at which the chains begin: those of one rail, where machines are equal. Of two channels one is the other's mirror:
// who has children in one is a leaf of the other.
std::vector<RankTree> trees(const Channels& channels);

// Gives a layout of the same ranks the ring orders, each from rank 0 on; none if all are as rings are without. Hosts of
// one NVLink domain (Layout::domains) stand side by side. Of machines that are alike the search has seen to it that
// rings keep to their rails (Layout::rails); of others, if ranks sit on processors, a machine is passed the other way
// round where a ring stays on its rail so.
void take_rings(const Channels& channels, Layout& layout);

// How often the ring goes from host to host, and how often of that between ranks of one rail, or hosts of one domain.
struct HostCrossings {
    int all = 0, on_rail = 0, in_domain = 0;
};
HostCrossings host_crossings_of(const Layout& layout, int channel);

}  // namespace weft::internal::topology
