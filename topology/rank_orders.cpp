#include "topology/rank_orders.hpp"

#include <algorithm>
#include <utility>

namespace weft::topology {

namespace {

// Of one machine on one channel.
std::vector<int32_t> chain(const Channels& channels, const PlacedMachine& machine, int channel, bool backwards) {
    const KindChannels& kind = channels.kinds[size_t(machine.kind)];
    std::vector<int32_t> ranks;
    if (kind.packing.rings.empty()) {
        for (const auto& on_site : machine.ranks) ranks.insert(ranks.end(), on_site.begin(), on_site.end());
    } else {
        for (const int site : kind.packing.rings[size_t(channel)].order) {
            const auto& on_site = machine.ranks[size_t(site)];
            ranks.insert(ranks.end(), on_site.begin(), on_site.end());
        }
    }
    if (backwards) std::reverse(ranks.begin(), ranks.end());
    return ranks;
}

// The in-order binary tree over 0..count-1, whose top is 0: who is `l` from its parent has `l` as its lowest bit.
int parent_in_order(int node, int count) {
    if (node == 0) return -1;
    const int bit = node & -node, above = (node ^ bit) | 2 * bit;
    return above < count ? above : node ^ bit;
}

// The second tree is the first mirrored, or, if there is an odd number, shifted by one.
int parent_of(int place, int count, bool second) {
    if (!second) return parent_in_order(place, count);
    const bool even = count % 2 == 0;
    const int parent = parent_in_order(even ? count - 1 - place : (place + 1) % count, count);
    if (parent < 0) return -1;
    return even ? count - 1 - parent : (parent + count - 1) % count;
}

}  // namespace

std::vector<std::vector<int32_t>> ring_orders(const Channels& channels) {
    std::vector<std::vector<int32_t>> orders(static_cast<size_t>(channels.channels));
    for (int channel = 0; channel < channels.channels; ++channel) {
        auto& order = orders[size_t(channel)];
        order.reserve(size_t(channels.ranks));
        for (size_t i = 0; i < channels.machines.size(); ++i) {
            const auto ranks = chain(channels, channels.machines[i], channel, channels.alternates && i % 2 == 1);
            order.insert(order.end(), ranks.begin(), ranks.end());
        }
    }
    return orders;
}

std::vector<RankTree> trees(const Channels& channels) {
    std::vector<RankTree> found(static_cast<size_t>(channels.channels));
    const int count = int(channels.machines.size());
    for (int channel = 0; channel < channels.channels; ++channel) {
        auto& parent = found[size_t(channel)].parent;
        parent.assign(size_t(channels.ranks), -1);
        std::vector<int32_t> heads;
        for (const PlacedMachine& machine : channels.machines) {
            const auto ranks = chain(channels, machine, channel, false);
            for (size_t i = 1; i < ranks.size(); ++i) parent[size_t(ranks[i])] = ranks[i - 1];
            heads.push_back(ranks.front());
        }
        for (int place = 0; place < count; ++place) {
            const int above = parent_of(place, count, channel % 2 == 1);
            if (above >= 0) parent[size_t(heads[size_t(place)])] = heads[size_t(above)];
        }
    }
    return found;
}

void take_rings(const Channels& channels, Layout& layout) {
    layout.ring_orders.clear();
    auto orders = ring_orders(channels);
    std::vector<int32_t> usual = layout.host_major();
    const auto begin_at_rank_0 = [](std::vector<int32_t>& order) {
        std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
    };
    begin_at_rank_0(usual);
    for (auto& order : orders) begin_at_rank_0(order);
    if (std::any_of(orders.begin(), orders.end(), [&](const auto& order) { return order != usual; }))
        layout.ring_orders = std::move(orders);
}

}  // namespace weft::topology
