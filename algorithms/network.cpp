#include "algorithms/network.hpp"

#include "algorithms/algorithms.hpp"

namespace weft {

Network::Network(const Layout& layout, const LinkCosts& costs)
    : costs_(costs), ranks_(layout.ranks), hosts_(layout.host_count()), ranks_a_host_(layout.ranks) {
    if (hosts_ == 1) return;
    ranks_a_host_ = 1;
    for (const auto& ranks : layout.ranks_by_host()) ranks_a_host_ = std::max(ranks_a_host_, int(ranks.size()));
}

double Network::message_us(bool crosses) const {
    return crosses ? costs_.net_latency_us + (costs_.ranks_per_core - 1) * costs_.switch_us
                   : costs_.meeting_us() + costs_.skew_us;
}

double Network::handling_us(double bytes) const { return 3 * costs_.stream_us(size_t(bytes), size_t(2 * bytes)); }

double Network::round_us(int distance, double bytes) const {
    // So many ranks of a host send beyond its border.
    const int crossing = hosts_ == 1 ? 0 : std::min({ranks_a_host_, distance, ranks_ - distance});
    return message_us(crossing > 0) + link_us(crossing * bytes) + handling_us(bytes);
}

const char* several_hosts(const Layout& layout) {
    return layout.host_count() > 1 ? "needs all ranks on one host" : nullptr;
}

const char* not_two_levels(const Layout& layout) {
    const int hosts = layout.host_count();
    if (hosts == 1) return "needs several hosts";
    return hosts == layout.ranks ? "needs a host with several ranks" : nullptr;
}

}  // namespace weft
