#include "src/selector/tuning.hpp"

#include <cmath>

#include "src/selector/selector.hpp"

namespace weft {

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
    const auto place = [](size_t of) { return std::log(double(std::max<size_t>(of, 1))); };
    const double share = (place(inside) - place(low.bytes)) / (place(high.bytes) - place(low.bytes));
    return std::exp(std::log(low.us) * (1 - share) + std::log(high.us) * share);
}

LinkCosts link_costs_in_blocks(int ranks, int hosts, int cores, int64_t link_mbps, bool kernel_copies) {
    if (hosts == 1) return host_link_costs(ranks, cores, kernel_copies);
    const int here = (ranks + hosts - 1) / hosts;
    return network_link_costs((here + cores - 1) / std::max(1, cores), link_mbps, kernel_copies);
}

bool Tuning::of_network(const LinkCosts& links) const {
    return links.net_us_per_byte == network_link_costs(1, link_mbps, kernel_copies).net_us_per_byte;
}

LinkCosts Tuning::fitted(const LinkCosts& links) const {
    LinkCosts fitted = links;
    const bool same_network = of_network(links);
    for (const Constant& constant : constant_table())
        if (same_network || !constant.of_network)
            // In proportion: what the arrangement says of a constant stays said.
            fitted.*constant.member *= constants.*constant.member / (LinkCosts{}.*constant.member);
    return fitted;
}

LinkCosts Tuning::links_of(const Curve& curve) const {
    return fitted(link_costs_in_blocks(curve.ranks, curve.hosts, cores, link_mbps, kernel_copies));
}

namespace {

// One host, a host for each rank, or hosts of several: times of one say nothing of another.
int kind_of(int ranks, int hosts) { return hosts == 1 ? 0 : hosts == ranks ? 1 : 2; }

double distance(const Tuning::Curve& curve, int ranks, int hosts) {
    const double of_ranks = std::abs(std::log2(double(curve.ranks) / ranks));
    // Ranks count first.
    return of_ranks + std::abs(std::log2(double(curve.hosts) / hosts)) / 1024;
}

}  // namespace

const Tuning::Curve* Tuning::nearest(Collective collective, std::string_view algorithm, const Layout& layout) const {
    const int hosts = layout.host_count();
    const Curve* best = nullptr;
    for (const Curve& curve : curves) {
        if (curve.collective != collective || curve.algorithm != algorithm) continue;
        if (kind_of(curve.ranks, curve.hosts) != kind_of(layout.ranks, hosts)) continue;
        if (!best || distance(curve, layout.ranks, hosts) < distance(*best, layout.ranks, hosts)) best = &curve;
    }
    return best;
}

}  // namespace weft
