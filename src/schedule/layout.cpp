#include "src/schedule/layout.hpp"

#include <algorithm>
#include <numeric>

namespace weft::internal {

std::vector<int32_t> Layout::ranks_of(int host) const {
    const RanksByHost all = ranks_by_host();
    return {all[size_t(host)].begin(), all[size_t(host)].end()};
}

RanksByHost Layout::ranks_by_host() const {
    return hosts.empty() ? RanksByHost(std::vector<int32_t>(size_t(ranks), 0)) : hosts.by_host();
}

RankOrder Layout::host_major() const {
    if (in_blocks()) return RankOrder(ranks);
    std::vector<int32_t> order(size_t(ranks), 0);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [this](int one, int other) { return host_of(one) < host_of(other); });
    return RankOrder(std::move(order));
}

int Layout::position() const {
    if (in_blocks()) return rank;
    int before = 0;
    for (int each = 0; each < ranks; ++each)
        before += host_of(each) < host_of(rank) || (each < rank && host_of(each) == host_of(rank));
    return before;
}

RankOrder Layout::ring_order(int channel) const {
    return ring_orders.empty() ? host_major() : RankOrder(ring_orders[size_t(channel) % ring_orders.size()]);
}

Ring Layout::ring(int channel) const {
    if (ring_orders.empty() && in_blocks()) return {rank, (rank + ranks - 1) % ranks, (rank + 1) % ranks};
    const RankOrder order = ring_order(channel);
    const int here = order.position_of(rank);
    return {here, order[size_t(here + ranks - 1) % size_t(ranks)], order[size_t(here + 1) % size_t(ranks)]};
}

std::vector<int32_t> hosts_in_blocks(int ranks, int hosts) {
    std::vector<int32_t> of(size_t(ranks), 0);
    for (int rank = 0; rank < ranks; ++rank) of[size_t(rank)] = int32_t(int64_t(rank) * hosts / ranks);
    return of;
}

Layout layout_in_blocks(int ranks, int hosts, int rank) {
    Layout layout{ranks, rank};
    if (hosts > 1) layout.hosts = hosts_in_blocks(ranks, hosts);
    return layout;
}

}  // namespace weft::internal
