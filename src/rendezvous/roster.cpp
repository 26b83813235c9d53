#include "src/rendezvous/roster.hpp"

#include <algorithm>

namespace weft::internal {

Result<int> Roster::add_host(ByteReader& content) {
    HostEntry entry = HostEntry::read(content);
    const std::vector<RankEntry> members = std::exchange(entry.members, {});
    if (hosts_.empty()) ranks_ = entry.ranks;
    hosts_.push_back(std::move(entry));
    const HostEntry& host = hosts_.back();
    if (content.ok() && host.ranks != ranks_)
        return fail(error::mismatch_ranks,
                    "the ranks of {} were given nranks {}, and those of {} were given {}: all ranks must be given the "
                    "same nranks",
                    host.text(), host.ranks, hosts_.front().text(), ranks_);
    const int place = int(hosts_.size());
    WEFT_TRY(add_ranks(place, members, content));
    if (!content.at_end()) return fail(error::internal_damaged, "{} sent the root a damaged message", host.text());
    return place;
}

Status Roster::add_joined(ByteReader& content) {
    while (content.left() > 0) {
        const JoinedReport report = JoinedReport::read(content);
        if (!content.ok() || !has(report.place)) return fail(error::internal_damaged, "a report of ranks is damaged");
        hosts_[size_t(report.place) - 1].share |= report.share;
        WEFT_TRY(add_ranks(report.place, report.members, content));
    }
    return content.ok() ? ok() : fail(error::internal_damaged, "a report of ranks is damaged");
}

Status Roster::add_ranks(int place, const std::vector<RankEntry>& members, ByteReader& content) {
    HostEntry& entry = hosts_[size_t(place) - 1];
    for (const RankEntry& member : members) {
        if (member.rank < 0 || member.rank >= ranks_)
            return fail(error::internal_state, "{} claims to have rank {} of {}", entry.text(), member.rank, ranks_);
        if (const auto [known, first] = place_of_.emplace(member.rank, place); !first) {
            const HostEntry& other = host(known->second);
            const auto earlier = std::find_if(other.members.begin(), other.members.end(),
                                              [&](const RankEntry& one) { return one.rank == member.rank; });
            return fail(error::mismatch_rank_twice, "two processes are rank {} of {}: pid {} on {} and pid {} on {}",
                        member.rank, ranks_, earlier->pid, other.text(), member.pid, entry.text())
                .about({.rank = member.rank});
        }
        entry.members.push_back(member);
        if (member.rank == 0) {
            agreed_ = content.get<AgreedOptions>();
            texts_.tuning = content.get_bytes();
            texts_.refusal = content.get_optional_failure();
        }
    }
    return ok();
}

void Roster::add_machine(const net::Digest& digest, std::string text) {
    const auto known = machines_.find(digest);
    if (known == machines_.end() || !known->second.empty() || text.empty()) return;
    known->second = std::move(text);
    --awaited_texts_;
}

Placement Roster::placement(int place) {
    Placement placement;
    placement.place = place;
    placement.parent = CheckInTree::parent(place);
    const net::Digest& digest = host(place).machine_digest;
    placement.wants_machine = digest != net::Digest{} && machines_.emplace(digest, "").second;
    awaited_texts_ += placement.wants_machine;
    if (placement.parent == 0) return placement;
    const HostEntry& parent = host(placement.parent);
    placement.process = parent.process;
    placement.leader = leader_text(parent);
    placement.addresses = parent.addresses;
    placement.rank = lowest_rank(parent);
    return placement;
}

std::string Roster::missing() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < ranks_; ++rank)
        if (!place_of_.count(rank)) ranks.push_back(rank);
    return ranks_text(ranks);
}

RankTable Roster::rank_table() const {
    RankTable rank_table;
    rank_table.agreed = agreed_;
    rank_table.texts = texts_;
    for (const HostEntry& host : hosts_)
        if (!host.members.empty()) rank_table.hosts.push_back(host);
    for (HostEntry& host : rank_table.hosts)
        std::sort(host.members.begin(), host.members.end(),
                  [](const RankEntry& one, const RankEntry& other) { return one.rank < other.rank; });
    std::sort(rank_table.hosts.begin(), rank_table.hosts.end(), [](const HostEntry& one, const HostEntry& other) {
        return one.members.front().rank < other.members.front().rank;
    });
    for (HostEntry& host : rank_table.hosts) {
        if (const auto known = machines_.find(host.machine_digest); known != machines_.end())
            host.machine.text = known->second;
        rank_table.texts.add_machine(std::exchange(host.machine, {}));
        if (!rank_table.texts.refusal) rank_table.texts.refusal = host.refusal;
    }
    rank_table.facts = facts_of(rank_table.hosts);
    return rank_table;
}

}  // namespace weft::internal
