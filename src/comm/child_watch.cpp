#include "src/comm/child_watch.hpp"

#include "src/base/clock.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

static constexpr int64_t split_look_apart_us = 20'000;

ChildWatch::ChildWatch(Communicator& parent, const Child& child, bool gathered)
    : parent_(parent),
      child_(child),
      gathered_(gathered),
      given_up_(*parent.context().segment, child),
      health_(*parent.context().segment),
      begun_us_(now_us()) {}

Status ChildWatch::look(bool by_id) {
    const Segment& group = *parent_.context().segment;
    if (parent_.aborted_here())
        return fail(error::abort_local,
                    "the communicator was aborted here, by weftCommAbort, while another was made of it");
    const int64_t now = now_us();
    if (now < next_look_us_) return ok();
    next_look_us_ = now + split_look_apart_us;
    if (const int other = given_up_.find(group, child_); other >= 0) return has_given_up(other);
    for (const int rank : child_.ranks) {
        if (!group.local(rank)) continue;
        if (by_id && is_gone(rank)) return has_gone(rank);
        // That rank failed in the exchange, which this rank has completed.
        const RankRow& row = group.row(rank);
        if (gathered_ && row.gave_up.load(std::memory_order_acquire) != 0 &&
            row.split.wanted.load(std::memory_order_acquire) != child_.number)
            return fail(error::rank_failed,
                        "{} failed before it could make a communicator from this one: its error says why",
                        group.name_of(rank))
                .about({.rank = rank});
    }
    // Reading rows of ranks on other hosts allocates memory, so a rank reads them only after a wait.
    return by_id && now - begun_us_ > RemoteHealth::ask_apart_us ? look_at_remote_ranks(now) : ok();
}

// Of ranks on other hosts, as their leaders report them.
Status ChildWatch::look_at_remote_ranks(int64_t now) {
    const Segment& group = *parent_.context().segment;
    health_.ask();
    int missed = -1, resigned = -1;
    for (const int rank : child_.ranks) {
        if (group.local(rank) || !is_gone(rank)) continue;
        const RankRow& row = group.row(rank);
        const bool left = row.state.load(std::memory_order_acquire) == RankState::left;
        if (!left && row.remote.out_of_sight.load(std::memory_order_acquire)) continue;
        // A rank that gave up and left had a reason, perhaps another rank's end.
        const bool gave_up = left && row.split.failed.load(std::memory_order_acquire) == child_.number;
        (gave_up ? resigned : missed) = rank;
    }
    if (missed < 0 && resigned < 0) return missed_us_ = 0, ok();
    // The rank may have completed this and later splits before it left; then the rank table is on its way.
    if (missed_us_ == 0) missed_us_ = now;
    if (now - missed_us_ <= RemoteHealth::departed_us) return ok();
    return missed >= 0 ? has_gone(missed) : has_given_up(resigned);
}

// Whether the rank left without taking part in this child, or died.
bool ChildWatch::is_gone(int rank) const {
    const Segment& group = *parent_.context().segment;
    const RankRow& row = group.row(rank);
    if (row.state.load(std::memory_order_acquire) != RankState::left) return !Liveness(group).alive(rank);
    return row.split.wanted.load(std::memory_order_acquire) != child_.number;
}

Status ChildWatch::has_gone(int rank) const {
    const Segment& group = *parent_.context().segment;
    const bool left = group.row(rank).state.load(std::memory_order_acquire) == RankState::left;
    return first_cause(group,
                       fail(left ? error::rank_left : error::rank_died,
                            "{} {} while the ranks were making a communicator from this one", group.name_of(rank),
                            left ? "left" : "died")
                           .about({.rank = rank}),
                       rank);
}

Status ChildWatch::has_given_up(int rank) const {
    return fail(error::rank_failed, "{} has given up making a communicator from this one: its error says why",
                parent_.context().segment->name_of(rank))
        .about({.rank = rank});
}

}  // namespace weft::internal
