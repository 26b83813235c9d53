#include "src/segment/first_cause.hpp"

namespace weft::internal {

namespace {

struct Ended {
    int victim = -1;   // a rank that ended after it was told of a failure
    int culprit = -1;  // a rank that died and was told nothing
};

Ended ended_of(const HostGroup& group) {
    Ended ended;
    for (int rank = 0; rank < group.ranks(); ++rank) {
        const bool left = group.row(rank).state.load(std::memory_order_acquire) == RankState::left;
        if (!left && group.alive(rank)) continue;
        if (!group.told(rank).empty())
            ended.victim = rank;
        else if (!left && ended.culprit < 0)
            ended.culprit = rank;
    }
    return ended;
}

}  // namespace

std::string death_of(const HostGroup& group, int rank) {
    const LossRecord& loss = group.header().loss;
    if (!group.one_host() && !group.local(rank) && loss.state.load(std::memory_order_acquire) &&
        loss.host == group.rank_info(rank).host)
        return fmt::format("{}; rank {} was there", loss.sentence, rank);
    const auto position = group.row(rank).position.read();
    return fmt::format("{} died {}", group.name_of(rank),
                       position && position->inside()
                           ? fmt::format("inside operation {}", position->entered)
                           : fmt::format("outside Weft after operation {}", position ? position->finished : 0));
}

Status known_cause(const HostGroup& group) {
    const Ended ended = ended_of(group);
    if (ended.victim < 0 || ended.culprit < 0) return ok();
    return fail(weftRemoteError, "{}", death_of(group, ended.culprit));
}

Status first_cause(const HostGroup& group, Status seen, int blamed) {
    if (seen.code() != weftRemoteError || group.aborted()) return seen;
    WEFT_TRY(known_cause(group));
    // That rank left by its own choice. Others may have ended because of that.
    if (blamed >= 0 && group.row(blamed).state.load(std::memory_order_acquire) == RankState::left &&
        group.told(blamed).empty())
        return seen;
    const Ended ended = ended_of(group);
    if (ended.victim < 0) return seen;
    return fail(weftRemoteError, "an earlier failure ended {}: {}. This rank saw: {}", group.name_of(ended.victim),
                group.told(ended.victim), seen.sentence());
}

}  // namespace weft::internal
