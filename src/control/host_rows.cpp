#include "src/control/host_rows.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <utility>

#include "src/segment/liveness.hpp"

namespace weft::internal {

bool is_this_host(const Segment& segment, const HostEntry& host, const std::set<int>& joined) {
    return std::all_of(host.members.begin(), host.members.end(), [&](const RankEntry& member) {
        return joined.count(member.rank) && segment.rank_info(member.rank).pid == member.pid;
    });
}

// Rows and host infos. Returns the index of this host.
static Result<int> write_rows(Segment& segment, const RankTable& rank_table, const std::set<int>& joined) {
    int own = -1;
    for (size_t host = 0; host < rank_table.hosts.size(); ++host) {
        const bool here = is_this_host(segment, rank_table.hosts[host], joined);
        if (here) own = int(host);
        for (const RankEntry& member : rank_table.hosts[host].members) {
            if (member.rank < 0 || member.rank >= segment.ranks()) continue;
            RankInfo& info = segment.rank_info(member.rank);
            info.host = int32_t(host);
            if (here) continue;
            if (joined.count(member.rank))
                return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} here and pid {} on {}",
                            member.rank, segment.ranks(), info.pid.load(), member.pid, rank_table.hosts[host].text())
                    .about({.rank = member.rank});
            if (member.device.use != DeviceFacts::none) {
                WEFT_TRY(segment.back_rows(member.rank, 1));
                segment.row(member.rank).gpu.facts = member.device;
            }
            info.cpu = member.cpu;
            info.networks = member.networks;
            info.pid.store(member.pid, std::memory_order_release);
        }
    }
    std::vector<HostInfo> infos;
    for (const HostEntry& host : rank_table.hosts) {
        HostInfo& info = infos.emplace_back();
        host.name.copy(info.name, sizeof info.name - 1);
        info.leader = host.pid;
        const auto listener = net::pack_addresses(host.addresses);
        static_assert(sizeof listener == sizeof info.listener_addresses);
        memcpy(info.listener_addresses, listener.data(), sizeof info.listener_addresses);
    }
    WEFT_TRY(
        segment.write(SegmentLayout{segment.ranks(), 0}.host_infos(), infos.data(), infos.size() * sizeof(HostInfo)));
    if (own < 0) return fail(error::internal_state, "the rank table lacks this host");
    return own;
}

Result<int> write_rank_table(Segment& segment, RankTable& rank_table, const std::set<int>& joined) {
    auto own = write_rows(segment, rank_table, joined);
    if (!own) return own;
    SegmentHeader& header = segment.header();
    header.agreed = rank_table.agreed;
    header.facts = rank_table.facts;
    header.own_host = *own;
    WEFT_TRY(std::exchange(rank_table.texts, {}).leave(segment));
    header.spread.store(1, std::memory_order_release);  // pairs with Segment::one_host()
    WEFT_TRY(segment.settle());
    syscall(SYS_futex, &header.joined, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    return own;
}

std::vector<int> dead_ranks(const Segment& segment, const std::set<int>& joined) {
    std::vector<int> dead;
    for (const int rank : joined) {
        const auto& state = segment.row(rank).state;
        if (state.load(std::memory_order_acquire) != RankState::joined || Liveness(segment).alive(rank)) continue;
        // A rank may have left since, and its process ended.
        if (state.load(std::memory_order_acquire) == RankState::joined) dead.push_back(rank);
    }
    return dead;
}

std::vector<int> ranks_of_leader(const RankTable& rank_table, int host) {
    const HostEntry& entry = rank_table.hosts[size_t(host)];
    std::vector<int> ranks;
    for (const RankEntry& member : entry.members)
        if (member.pid == entry.pid) ranks.push_back(member.rank);
    return ranks;
}

bool leader_has_left(const Segment& segment, const RankTable& rank_table, int host) {
    const std::vector<int> ranks = ranks_of_leader(rank_table, host);
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) {
        return segment.row(rank).state.load(std::memory_order_acquire) == RankState::left;
    });
}

void write_lost_host(Segment& segment, const RankTable& rank_table, int host, const std::string& sentence) {
    if (sentence.empty()) return write_ended_leader(segment, rank_table, host);
    // An error that was returned to the leader's ranks counts for the host's other ranks too: no more is known of them.
    Status returned;
    for (const int rank : ranks_of_leader(rank_table, host))
        if (returned) returned = Liveness(segment).returned_error(rank);
    LossRecord& loss = segment.header().loss;
    if (loss.state.load(std::memory_order_relaxed) == 0) {
        loss.host = host;
        loss.sentence[sentence.copy(loss.sentence, sizeof loss.sentence - 1)] = 0;
        loss.state.store(1, std::memory_order_release);
    }
    for (const RankEntry& member : rank_table.hosts[size_t(host)].members) {
        if (member.pid != rank_table.hosts[size_t(host)].pid && segment.back_rows(member.rank, 1)) {
            RankRow& row = segment.row(member.rank);
            const auto position = row.position.read();
            if (!returned && position) row.returned_error.write(position->entered, returned.failure());
            row.remote.out_of_sight.store(1, std::memory_order_release);
        }
        mark_dead(segment, member.rank);
    }
    write_ended_leader(segment, rank_table, host);
}

std::string lost_text(const RankTable& rank_table, int host, const Status& why) {
    return fmt::format("{} is lost: {}; its leader, {} (pid {}), died, or the network reset the connection",
                       rank_table.text(host), why ? "it closed the connection" : why.sentence(),
                       ranks_text(ranks_of_leader(rank_table, host)), rank_table.hosts[size_t(host)].pid);
}

void write_ended_leader(Segment& segment, const RankTable& rank_table, int host) {
    for (const int rank : ranks_of_leader(rank_table, host))
        if (segment.back_rows(rank, 1)) segment.row(rank).remote.leader_ended.store(1, std::memory_order_release);
    segment.wake_sleepers();
}

}  // namespace weft::internal
