#include "algorithms/network.hpp"

#include <cmath>

#include "algorithms/algorithms.hpp"

namespace weft {

Network::Network(const Layout& layout, const LinkCosts& costs, size_t bytes)
    : costs_(costs),
      ranks_(layout.ranks),
      hosts_(layout.host_count()),
      ranks_a_host_(layout.ranks),
      working_bytes_(hosts_ == 1 ? 2 * bytes : 0) {
    if (hosts_ == 1) return;
    ranks_a_host_ = 1;
    for (const auto ranks : layout.ranks_by_host()) ranks_a_host_ = std::max(ranks_a_host_, int(ranks.size()));
}

int Network::sharing(double working) const { return std::max(1, int(std::ceil(costs_.ranks_per_core * working))); }

double Network::message_us(bool crosses, double working) const {
    LinkCosts at_work = costs_;
    at_work.ranks_per_core = sharing(working);
    return crosses ? costs_.net_latency_us + (at_work.ranks_per_core - 1) * costs_.net_message_us
                   : at_work.meeting_us() + costs_.skew_us;
}

double Network::one_way_us(bool crosses, double working) const {
    return crosses || sharing(working) > 1 ? message_us(crosses, working) : costs_.signal_us;
}

double Network::handling_us(double bytes) const {
    return 3 * costs_.stream_us(size_t(bytes), std::max(size_t(2 * bytes), working_bytes_));
}

void Network::add_round(Rounds& rounds, int distance, double bytes, Coming coming, int senders) const {
    const int nearest = std::min(distance, ranks_ - distance);  // either way round
    // So many ranks of a host send beyond its border.
    const int crossing = hosts_ == 1 ? 0 : std::min(ranks_a_host_, nearest);
    const double working = std::min(1.0, 2.0 * senders / ranks_);  // both ends of each message
    const double carrying = costs_.one_machine ? std::max(1.0 / costs_.ranks_per_core, double(senders) / ranks_) : 1;
    rounds.latency_us += message_us(crossing > 0, working);
    rounds.link_us += carrying * link_us(crossing * bytes, nearest > ranks_a_host_);
    // Between hosts past the slots.
    rounds.handling_us += handling_us(bytes) * sharing(working) / costs_.ranks_per_core /
                          (crossing > 0 && coming == Coming::finished ? 3 : 1);
}

// Of the shorter of the two, measured with two ranks over loopback: 64 MiB take the longer, the more there is to sum.
static constexpr double never_overlapped = 0.25;

double Network::overlapped_us(const Rounds& rounds, double bytes, double tile_bytes) const {
    // The links of one machine are its processors, which do one after the other.
    if (costs_.one_machine && costs_.ranks_per_core > 1) return rounds.latency_us + rounds.link_us + rounds.handling_us;
    const double tiles = std::max(1.0, std::ceil(bytes / tile_bytes));
    return rounds.latency_us + std::max(rounds.link_us, rounds.handling_us) +
           std::min(rounds.link_us, rounds.handling_us) * std::max(1 / tiles, never_overlapped);
}

double Network::in_turn_us(const Rounds& rounds, double bytes, double tile_bytes) {
    const double tiles = std::max(1.0, std::ceil(bytes / tile_bytes));
    return tiles * rounds.latency_us + rounds.link_us + rounds.handling_us;
}

const char* several_hosts(const Layout& layout) {
    return layout.host_count() > 1 ? "needs all ranks on one host" : nullptr;
}

// Slots of connections within a host lie in its segment, half a megabyte each.
static constexpr size_t ranks_a_host_most = 96;

const char* too_many_of_a_host(const Layout& layout) {
    for (const auto ranks : layout.ranks_by_host())
        if (ranks.size() > ranks_a_host_most)
            return "needs a connection to every rank of a host: at most 96 ranks on each";
    return nullptr;
}

const char* not_two_levels(const Layout& layout) {
    const int hosts = layout.host_count();
    if (hosts == 1) return "needs several hosts";
    return hosts == layout.ranks ? "needs a host with several ranks" : nullptr;
}

}  // namespace weft
