#include "src/control/ended_leaders.hpp"

#include <utility>

#include "src/control/rank_table.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

EndedLeaders::EndedLeaders(const Segment& segment) : segment_(&segment) {
    if (segment.one_host()) return;
    for (int rank = 0; rank < segment.ranks(); ++rank) {
        const RankInfo& info = segment.rank_info(rank);
        if (info.pid.load(std::memory_order_acquire) != segment.host_info(info.host).leader) continue;
        if (segment.local(rank) ? !Liveness(segment).alive(rank)
                                : segment.row(rank).remote.leader_ended.load(std::memory_order_acquire) != 0)
            ranks_.emplace(info.host, rank);
    }
}

int EndedLeaders::on_the_way_to(int rank) const {
    const int target = segment_->rank_info(rank).host;
    for (int host = segment_->header().own_host;; host = HostTree::next(host, target)) {
        if (const auto place = ranks_.find(host); place != ranks_.end()) return place->second;
        if (host == target) return -1;
    }
}

int EndedLeaders::dead_on_the_way_to(int rank) const {
    const int leader = on_the_way_to(rank);
    return leader < 0 || segment_->row(leader).state.load(std::memory_order_acquire) == RankState::left ? -1 : leader;
}

Status EndedLeaders::failure(int leader, int rank, int other, bool connecting) const {
    const bool left = segment_->row(leader).state.load(std::memory_order_acquire) == RankState::left;
    return fail(error::host_lost,
                "{}; {} between rank {} and {} would pass through that process: make a communicator of the remaining "
                "ranks (weftCommShrink)",
                left ? fmt::format("{} left the communicator, and its process ended", segment_->name_of(leader))
                     : death_of(*segment_, leader),
                connecting ? "connection info" : "reports", rank, segment_->name_of(other))
        .about({.rank = leader, .peer = rank});
}

Status LeaderWatch::look(const Segment& segment, int rank, const std::vector<int>& missing, int64_t patience_us,
                         int64_t now_us) {
    const EndedLeaders ended(segment);
    std::map<int, int64_t> since;
    Status found;
    for (const int other : missing) {
        const int leader = segment.local(other) || ended.none() ? -1 : ended.on_the_way_to(other);
        if (leader < 0) continue;
        const auto before = since_us_.find(leader);
        const int64_t since_us =
            since.try_emplace(leader, before == since_us_.end() ? now_us : before->second).first->second;
        if (found && now_us - since_us >= patience_us) found = ended.failure(leader, rank, other, true);
    }
    since_us_ = std::move(since);
    return found;
}

}  // namespace weft::internal
