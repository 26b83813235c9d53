#include "src/selector/tuning.hpp"

#include <algorithm>

#include "src/selector/built_in_costs.hpp"
#include "src/selector/logarithm.hpp"

namespace weft::internal {

std::span<const Tuning::Constant> Tuning::constant_table() {
    static constexpr Constant table[] = {
        {"signal_us", &LinkCosts::signal_us, false},
        {"switch_us", &LinkCosts::switch_us, false},
        {"skew_us", &LinkCosts::skew_us, false},
        {"cached_us_per_byte", &LinkCosts::cached_us_per_byte, false},
        {"memory_us_per_byte", &LinkCosts::memory_us_per_byte, false},
        {"net_latency_us", &LinkCosts::net_latency_us, true},
        {"net_message_us", &LinkCosts::net_message_us, true},
        {"net_us_per_byte", &LinkCosts::net_us_per_byte, true},
    };
    return table;
}

size_t Tuning::Curve::within(size_t bytes) const {
    return std::clamp(bytes, points.front().bytes, points.back().bytes);
}

double Tuning::Curve::us_at(size_t bytes) const {
    const size_t inside = within(bytes);
    const auto after = std::lower_bound(points.begin(), points.end(), inside,
                                        [](const Point& point, size_t wanted) { return point.bytes < wanted; });
    if (after->bytes == inside) return after->us;
    const Point &low = *(after - 1), &high = *after;
    const auto place = [](size_t of) { return logarithm(double(std::max<size_t>(of, 1))); };
    const double share = (place(inside) - place(low.bytes)) / (place(high.bytes) - place(low.bytes));
    return exponential(logarithm(low.us) * (1 - share) + logarithm(high.us) * share);
}

LinkCosts Tuning::built_in() const { return network_link_costs(1, link_mbps, uses_cma, simulated.empty()); }

bool Tuning::of_network(const LinkCosts& links) const {
    // The user named a simulation for these hosts; their network's speed may be unknown.
    if (!simulated.empty()) return !links.one_machine;
    return links.one_machine && links.net_us_per_byte == built_in().net_us_per_byte;
}

LinkCosts Tuning::fitted(const LinkCosts& links) const {
    LinkCosts fitted = links;
    fitted.cut_by = std::make_shared<const LinkCosts>(links);
    const LinkCosts before = built_in();
    const bool same_network = of_network(links);
    for (const Constant& constant : constant_table())
        if (same_network || !constant.of_network)
            // In proportion, so that the effect of the layout on a constant is kept.
            fitted.*constant.member *= constants.*constant.member / (before.*constant.member);
    return fitted;
}

LinkCosts Tuning::links_here(int ranks, int hosts) const {
    if (!simulated.empty()) return link_costs_in_blocks(ranks, hosts, hosts, cores, link_mbps, uses_cma);
    const LinkCosts here = host_link_costs(ranks, cores, uses_cma);
    return hosts == 1 ? here : network_link_costs(here.ranks_per_core, link_mbps, uses_cma, true);
}

bool Tuning::of_shared_memory() const {
    return simulated.empty() &&
           std::any_of(curves.begin(), curves.end(), [](const Curve& curve) { return curve.hosts < curve.ranks; });
}

static bool has_placement(const Tuning::Curve& curve, bool apart) {
    return curve.hosts == curve.ranks || !curve.apart || *curve.apart == apart;
}

bool Tuning::has_other_placement(bool apart) const {
    return !std::all_of(curves.begin(), curves.end(), [&](const Curve& curve) { return has_placement(curve, apart); });
}

Tuning Tuning::with_placement(bool apart) const {
    Tuning left = *this;
    std::erase_if(left.curves, [&](const Curve& curve) { return !has_placement(curve, apart); });
    if (left.of_shared_memory()) return left;
    for (const Constant& constant : constant_table())
        if (!constant.of_network) left.constants.*constant.member = built_in().*constant.member;
    return left;
}

namespace {

// The kind of layout: one host, one rank a host, or several ranks on several hosts. Kinds are not comparable.
int kind_of(int ranks, int hosts) { return hosts == 1 ? 0 : hosts == ranks ? 1 : 2; }

// The ratio of two numbers, at least 1. Compared without rounding, so that all ranks find the same curve.
struct Distance {
    int64_t large, small;
    Distance(int one, int other) : large(std::max(one, other)), small(std::min(one, other)) {}
    bool operator<(const Distance& other) const { return large * other.small < other.large * small; }
};

// Compares by ranks, then by hosts. Of equally near curves the first one wins.
bool nearer(const Tuning::Curve& curve, const Tuning::Curve& than, int ranks, int hosts) {
    const Distance one(curve.ranks, ranks), other(than.ranks, ranks);
    if (one < other || other < one) return one < other;
    return Distance(curve.hosts, hosts) < Distance(than.hosts, hosts);
}

}  // namespace

const Tuning::Curve* Tuning::nearest(Collective collective, std::string_view algorithm, const Layout& layout) const {
    const int hosts = layout.host_count();
    const Curve* best = nullptr;
    for (const Curve& curve : curves) {
        if (curve.collective != collective || curve.algorithm != algorithm) continue;
        if (kind_of(curve.ranks, curve.hosts) != kind_of(layout.ranks, hosts)) continue;
        if (!best || nearer(curve, *best, layout.ranks, hosts)) best = &curve;
    }
    return best;
}

}  // namespace weft::internal
