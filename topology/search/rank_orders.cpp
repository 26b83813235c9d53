#include "topology/search/rank_orders.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace weft::internal::topology {

namespace {

// The ranks of one machine on one channel.
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

// The in-order binary tree over 0..count-1 with root 0. The distance of a node from its parent is its lowest set bit.
int parent_in_order(int node, int count) {
    if (node == 0) return -1;
    const int bit = node & -node, above = (node ^ bit) | 2 * bit;
    return above < count ? above : node ^ bit;
}

// The second tree is the mirror image of the first or, for an odd number, shifted by one.
int parent_of(int place, int count, bool second) {
    if (!second) return parent_in_order(place, count);
    const bool even = count % 2 == 0;
    const int parent = parent_in_order(even ? count - 1 - place : (place + 1) % count, count);
    if (parent < 0) return -1;
    return even ? count - 1 - parent : (parent + count - 1) % count;
}

// The machines in the order of rings. Those of a domain follow its first one.
std::vector<size_t> machine_order(const Channels& channels, const Layout& layout) {
    std::vector<size_t> order(channels.machines.size());
    std::iota(order.begin(), order.end(), size_t(0));
    if (layout.domains.empty()) return order;
    std::map<int32_t, size_t> first;
    std::vector<size_t> key;
    for (size_t i = 0; i < order.size(); ++i) {
        const int32_t domain = layout.domains[size_t(layout.host_of(channels.machines[i].ranks.front().front()))];
        key.push_back(domain < 0 ? i : first.try_emplace(domain, i).first->second);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) { return key[one] < key[other]; });
    return order;
}

// Whether a ring from `from` stays on its rail only if it passes these ranks backwards.
bool turns(const Layout& layout, int32_t from, const std::vector<int32_t>& ranks) {
    const auto same = [&](int32_t to) {
        return layout.rails[size_t(from)] >= 0 && layout.rails[size_t(from)] == layout.rails[size_t(to)];
    };
    return !same(ranks.front()) && same(ranks.back());
}

bool of_processors(const Channels& channels) {
    const MachineKind& kind = channels.kinds.front();
    return kind.machine_graph.graph->node(kind.sites.front()).kind == NodeKind::cpu;
}

std::vector<std::vector<int32_t>> ring_orders(const Channels& channels, const Layout& layout) {
    std::vector<std::vector<int32_t>> orders(static_cast<size_t>(channels.channels));
    const std::vector<size_t> machines = machine_order(channels, layout);
    const bool keeps_rails = !layout.rails.empty() && !channels.alternates && of_processors(channels);
    for (int channel = 0; channel < channels.channels; ++channel) {
        auto& order = orders[size_t(channel)];
        order.reserve(size_t(channels.ranks));
        for (size_t i = 0; i < machines.size(); ++i) {
            auto ranks = chain(channels, channels.machines[machines[i]], channel, channels.alternates && i % 2 == 1);
            if (keeps_rails && i > 0 && turns(layout, order.back(), ranks)) std::reverse(ranks.begin(), ranks.end());
            order.insert(order.end(), ranks.begin(), ranks.end());
        }
    }
    return orders;
}

}  // namespace

std::vector<std::vector<int32_t>> ring_orders(const Channels& channels) { return ring_orders(channels, Layout()); }

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
    auto orders = ring_orders(channels, layout);
    std::vector<int32_t> usual = layout.host_major();
    const auto begin_at_rank_0 = [](std::vector<int32_t>& order) {
        std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
    };
    begin_at_rank_0(usual);
    for (auto& order : orders) begin_at_rank_0(order);
    if (std::any_of(orders.begin(), orders.end(), [&](const auto& order) { return order != usual; }))
        layout.ring_orders = std::move(orders);
}

HostCrossings host_crossings_of(const Layout& layout, int channel) {
    HostCrossings crossings;
    const RankOrder order = layout.ring_order(channel);
    for (size_t i = 0; i < order.size(); ++i) {
        const int from = order[i], to = order[(i + 1) % order.size()];
        const int out = layout.host_of(from), in = layout.host_of(to);
        if (out == in) continue;
        ++crossings.all;
        crossings.on_rail += !layout.rails.empty() && layout.rails[size_t(from)] >= 0 &&
                             layout.rails[size_t(from)] == layout.rails[size_t(to)];
        crossings.in_domain += !layout.domains.empty() && layout.domains[size_t(out)] >= 0 &&
                               layout.domains[size_t(out)] == layout.domains[size_t(in)];
    }
    return crossings;
}

}  // namespace weft::internal::topology
