#include "src/segment/first_cause.hpp"

#include "src/segment/liveness.hpp"

namespace weft::internal {

namespace {

struct Ended {
    int victim = -1;   // a rank that ended after a failure was returned to it
    int culprit = -1;  // a rank that died without a returned failure
};

Ended ended_of(const Segment& segment) {
    Ended ended;
    for (int rank = 0; rank < segment.ranks(); ++rank) {
        const bool left = segment.row(rank).state.load(std::memory_order_acquire) == RankState::left;
        if (!left && Liveness(segment).alive(rank)) continue;
        if (!Liveness(segment).returned_error(rank))
            ended.victim = rank;
        else if (!left && ended.culprit < 0)
            ended.culprit = rank;
    }
    return ended;
}

}  // namespace

std::string death_of(const Segment& segment, int rank) {
    const LossRecord& loss = segment.header().loss;
    if (!segment.one_host() && !segment.local(rank) && loss.state.load(std::memory_order_acquire) &&
        loss.host == segment.rank_info(rank).host)
        return fmt::format("{}; rank {} was there", loss.sentence, rank);
    const auto position = segment.row(rank).position.read();
    return fmt::format("{} died {}", segment.name_of(rank),
                       position && position->inside()
                           ? fmt::format("inside operation {}", position->entered)
                           : fmt::format("outside Weft after operation {}", position ? position->finished : 0));
}

Status known_cause(const Segment& segment) {
    const Ended ended = ended_of(segment);
    if (ended.victim < 0 || ended.culprit < 0) return ok();
    return fail(error::rank_died, "{}", death_of(segment, ended.culprit)).about({.rank = ended.culprit});
}

Status first_cause(const Segment& segment, Status seen, int blamed) {
    if (seen.code() != weftRemoteError || segment.aborted()) return seen;
    WEFT_TRY(known_cause(segment));
    // That rank left by its own choice. The other ranks may have ended because of that.
    if (blamed >= 0 && segment.row(blamed).state.load(std::memory_order_acquire) == RankState::left &&
        Liveness(segment).returned_error(blamed))
        return seen;
    const Ended ended = ended_of(segment);
    if (ended.victim < 0) return seen;
    return fail(error::rank_failed, "{} ended after an earlier failure: {}. This rank saw: {}",
                segment.name_of(ended.victim), Liveness(segment).returned_error(ended.victim).sentence(),
                seen.sentence())
        .about({.rank = ended.victim, .peer = seen.facts().peer});
}

}  // namespace weft::internal
