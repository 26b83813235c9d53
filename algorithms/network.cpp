#include "algorithms/network.hpp"

#include <algorithm>
#include <cmath>

#include "algorithms/algorithms.hpp"

namespace weft::internal {

Network::Network(const Layout& layout, const LinkCosts& costs, size_t bytes)
    : layout_(layout),
      costs_(costs),
      ranks_(layout.ranks),
      hosts_(layout.host_count()),
      ranks_a_host_(layout.ranks),
      working_bytes_(hosts_ == 1 ? 2 * bytes : 0) {
    if (hosts_ == 1) return;
    ranks_a_host_ = 1;
    for (const auto ranks : layout.ranks_by_host()) ranks_a_host_ = std::max(ranks_a_host_, int(ranks.size()));
    if (costs.net_links > 1) find_links();
}

void Network::find_links() {
    const int links = costs_.net_links;
    link_of_.resize(size_t(ranks_));
    sharing_.resize(size_t(ranks_a_host_) + 1);
    spread_.resize(size_t(ranks_a_host_) + 1);
    const RanksByHost hosts = layout_.ranks_by_host();
    for (int host = 0; host < hosts_; ++host) {
        const auto ranks = hosts[size_t(host)];
        for (size_t place = 0; place < ranks.size(); ++place) {
            const int rail = layout_.rails.empty() ? int(place) : std::max(0, layout_.rails[size_t(ranks[place])]);
            link_of_[size_t(ranks[place])] = int32_t(host * links + rail % links);
        }
        // Counted from either end.
        const auto count = [&](auto first, auto last) {
            std::vector<int> on(size_t(links), 0);
            int most = 0;
            for (size_t crossing = 1; first != last; ++first, ++crossing) {
                most = std::max(most, ++on[size_t(link_of_[size_t(*first)] % links)]);
                sharing_[crossing] = std::max(sharing_[crossing], most);
            }
        };
        std::vector<int> on(size_t(links), 0), before;  // how many ranks of its link precede each
        for (const int32_t rank : ranks) before.push_back(on[size_t(link_of_[size_t(rank)] % links)]++);
        std::sort(before.begin(), before.end());
        for (size_t owners = 1; owners <= before.size(); ++owners)
            spread_[owners] = std::max(spread_[owners], before[owners - 1] + 1);
        count(ranks.begin(), ranks.end());
        count(ranks.rbegin(), ranks.rend());
    }
    for (size_t crossing = 1; crossing < sharing_.size(); ++crossing) {  // on smaller hosts
        sharing_[crossing] = std::max(sharing_[crossing], sharing_[crossing - 1]);
        spread_[crossing] = std::max(spread_[crossing], spread_[crossing - 1]);
    }
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

void Network::add_round(Rounds& rounds, int distance, double bytes, ReceivedData received_data, int senders) const {
    const int nearest = std::min(distance, ranks_ - distance);  // in either direction round
    // The number of ranks of a host that send to other hosts.
    const int crossing = hosts_ == 1 ? 0 : std::min(ranks_a_host_, nearest);
    const double working = std::min(1.0, 2.0 * senders / ranks_);  // both ends of each message
    const double carrying = costs_.one_machine ? std::max(1.0 / costs_.ranks_per_core, double(senders) / ranks_) : 1;
    // A kernel makes a pass over what it sends and one over what it receives; a thread's three streams cover both.
    const int ends = costs_.net_by_kernels && crossing > 0 && senders == ranks_ ? 2 : 1;
    // Rounds between nearby ranks cross this many host borders, one after the other. In other rounds any message may
    // cross.
    bool waits_for_remote = crossing > 0;
    if (machines() && nearest < ranks_a_host_) {
        const int borders = (rounds.near_distance + ranks_a_host_ - 1) / ranks_a_host_;
        rounds.near_distance += nearest;
        waits_for_remote = borders * ranks_a_host_ < rounds.near_distance;
    }
    rounds.add(message_us(waits_for_remote, working),
               carrying * link_us(on_a_link(crossing) * bytes, nearest > ranks_a_host_),
               ends * handling_us(bytes, crossing > 0, received_data) * sharing(working) / costs_.ranks_per_core);
}

double Network::carried_us(double link_us, double handling_us) const {
    return links_are_cores() ? link_us + handling_us : std::max(link_us, handling_us);
}

// The share of the shorter time that does not overlap.
static constexpr double never_overlapped = 0.25;

double Network::overlapped_us(const Rounds& rounds, double bytes, double tile_bytes) const {
    if (links_are_cores()) return rounds.latency_us + rounds.link_us + rounds.handling_us;
    const double tiles = std::max(1.0, std::ceil(bytes / tile_bytes));
    const double busy_us = std::max(rounds.link_us, rounds.handling_us) +
                           std::min(rounds.link_us, rounds.handling_us) * std::max(1 / tiles, never_overlapped);
    const double slowest_us = (tiles - 1) * rounds.longest_wait_us + rounds.longest_work_us;
    return rounds.latency_us + (machines() ? std::max(busy_us, slowest_us) : busy_us);
}

double Network::by_scratch_us(const Rounds& rounds, double bytes, double tile_bytes) const {
    const double overlapped = overlapped_us(rounds, bytes, tile_bytes);
    if (!machines()) return overlapped;
    const double tiles = std::max(1.0, std::ceil(bytes / tile_bytes));
    return std::max(overlapped, in_turn_us(rounds, bytes, tile_bytes) - (tiles - 1) * rounds.longest_wait_us);
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

}  // namespace weft::internal
