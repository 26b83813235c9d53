#include "src/control/watchdog.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/control/ended_leaders.hpp"
#include "src/control/position_text.hpp"
#include "src/net/lost_packets.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/first_cause.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

// The ranks of other hosts are alive: otherwise their loss would have been reported.
std::string Watchdog::lost_packets() {
    const std::string lost = net::lost_packets_of_process();
    return lost.empty() ? "" : "; " + lost;
}

std::string Watchdog::name() const {
    return communicator_.empty() ? "" : fmt::format(" on communicator {}", communicator_);
}

Status Watchdog::mismatch(int other, uint64_t sequence, const Operation& operation, uint64_t of) {
    const FailureFacts facts{.rank = other, .peer = rank_, .operation = operation.collective, .sequence = sequence};
    if (of != 0 && of < sequence)
        return fail(error::mismatch_call,
                    "operation {}{}: rank {} sent data that rank {} did not receive, which rank {} sees in operation "
                    "{}, {}; every rank must make the same calls in the same order, with the same root",
                    of, name(), other, rank_, rank_, sequence, operation.text())
            .about({.rank = other, .peer = rank_, .operation = operation.collective, .sequence = of});
    for (int64_t until = now_us() + 500'000; now_us() < until;) {
        if (auto report = segment_->row(other).position.read(); report && report->entered >= sequence) {
            if (report->entered > sequence)
                return fail(error::mismatch_call,
                            "operation {}{}: rank {} called {}, and rank {} called something else before operation {}, "
                            "{}; every rank must make the same calls in the same order",
                            sequence, name(), rank_, operation.text(), other, report->entered, report->operation.text())
                    .about(facts);
            Operation ours = operation, theirs = report->operation;
            ours.choice = theirs.choice = 0;
            const auto [low, high] = std::minmax(rank_, other);
            const Operation &low_call = rank_ < other ? operation : report->operation,
                            &high_call = rank_ < other ? report->operation : operation;
            if (ours == theirs)
                return fail(error::mismatch_algorithm,
                            "ranks {} and {} both called {} as operation {}{} but chose different algorithms: are they "
                            "the same build, with the same WEFT_ options and the same weftCommSetCallConfig?",
                            low, high, operation.text(), sequence, name())
                    .about(facts);
            return fail(mismatch_between(ours, theirs),
                        "operation {}{}: rank {} called {}, rank {} called {}; every rank must make the same calls in "
                        "the same order",
                        sequence, name(), low, low_call.text(), high, high_call.text())
                .about(facts);
        }
        if (!Liveness(*segment_).alive(other)) break;
        health_.ask();
        usleep(1000);
    }
    return fail(error::mismatch_call,
                "operation {}{}: rank {} called {}, and rank {} called something else; every rank must make the same "
                "calls in the same order",
                sequence, name(), rank_, operation.text(), other)
        .about(facts);
}

Status Watchdog::look_at(int other, uint64_t sequence, const Operation& operation, int64_t silence_us) {
    const FailureFacts facts{.rank = other, .peer = rank_, .operation = operation.collective, .sequence = sequence};
    const RankRow& row = segment_->row(other);
    // Read before its last call: a rank that has ended or left makes no more calls. A process ends after its ranks left.
    const bool alive = Liveness(*segment_).alive(other),
               left = row.state.load(std::memory_order_acquire) == RankState::left;
    // The call is compared before the end: a rank that made another call and left is a mismatch, not a death.
    const auto report = row.position.read();
    if (report && report->entered == sequence && !(report->operation == operation))
        return mismatch(other, sequence, operation);
    // The rank finished this operation, so all its data was sent, perhaps since this rank last polled. Data that is
    // still missing at the next check will never come.
    if (report && report->finished >= sequence) {
        // Data on a network may be in flight for long.
        if (!segment_->local(other) && silence_us < limits_.in_flight_us()) return ok();
        if (!finished_.contains(other)) return finished_.insert(other), ok();
        return fail(error::mismatch_call,
                    "{} finished operation {}{} without the data that rank {} waits for in {}; every rank must make "
                    "the same calls in the same order",
                    segment_->name_of(other), sequence, name(), rank_, operation.text())
            .about(facts);
    }
    if (!alive && !left) {
        const bool here = segment_->local(other);
        if (!here && silence_us < RemoteHealth::settled_us) return ok();
        // This rank may have had no processor: data that came meanwhile is found before the next check.
        if (!here && !gone_.contains(other)) return gone_.insert(other), ok();
        const LossRecord& loss = segment_->header().loss;
        if (!here && loss.state.load(std::memory_order_acquire) && loss.host == segment_->rank_info(other).host)
            return fail(error::host_lost, "{}; rank {} waited for rank {} there in operation {}{}, {}", loss.sentence,
                        rank_, other, sequence, name(), operation.text())
                .about(facts);
        return fail(error::rank_died, "{}; rank {} waited for it in operation {}{}, {}", death_of(*segment_, other),
                    rank_, sequence, name(), operation.text())
            .about(facts);
    }
    if (left && report && report->entered < sequence)
        return fail(error::rank_left,
                    "{} left the communicator after operation {}; rank {} waits for it in operation {}{}, {}",
                    segment_->name_of(other), report->finished, rank_, sequence, name(), operation.text())
            .about(facts);
    return ok();
}

// Connection info of a remote rank, and the report of its end, come through leaders. `seen`: ranks found so at the last
// check, for what came since this rank last polled.
Status Watchdog::look_at_leaders(const RankSet& missing, int64_t silence_us, bool connecting, RankSet& seen) const {
    if (segment_->one_host() || silence_us < RemoteHealth::settled_us) return ok();
    const EndedLeaders ended(*segment_);
    Status found;
    if (ended.none()) return found;
    missing.for_each([&](int other) {
        const int leader = segment_->local(other) || !found ? -1 : ended.on_the_way_to(other);
        if (leader < 0) return;
        const bool left = segment_->row(leader).state.load(std::memory_order_acquire) == RankState::left;
        // Connected ranks need no leader, and a leader that left is no reason to end their messages.
        if (!connecting && (left || silence_us < RemoteHealth::departed_us)) return;
        if (!seen.contains(other)) return seen.insert(other);
        found = ended.failure(leader, rank_, other, connecting);
    });
    return found;
}

// A missing rank may itself wait for another one, so ranks that are not missing are checked too.
Status Watchdog::look_beyond(const RankSet& missing, uint64_t sequence, const Operation& operation,
                             int64_t silence_us) {
    for (int other = 0; other < segment_->ranks(); ++other) {
        if (other == rank_ || missing.contains(other)) continue;
        const auto report = segment_->row(other).position.read();
        if (!report || report->finished >= sequence) continue;
        const RankState state = segment_->row(other).state.load(std::memory_order_acquire);
        const bool gone = state == RankState::left || state == RankState::dead || !Liveness(*segment_).alive(other),
                   differs = report->entered == sequence && !(report->operation == operation);
        // A rank that ended after an error was returned to it is not the cause, which may still be reported.
        if (gone && silence_us == INT64_MAX && !Liveness(*segment_).returned_error(other)) continue;
        if (gone || differs) WEFT_TRY(look_at(other, sequence, operation, silence_us));
    }
    return ok();
}

Status Watchdog::cause(uint64_t sequence, const Operation& operation) {
    health_.ask();
    WEFT_TRY(known_cause(*segment_));
    return look_beyond({}, sequence, operation, INT64_MAX);
}

Status Watchdog::await_cause(const std::function<Status()>& cause) const {
    for (const int64_t broken_us = now_us(); health_.cause_may_come(broken_us); usleep(5000)) WEFT_TRY(cause());
    return ok();
}

// The ranks that are known not to have made the call, or to be stopped in it; if there are none, the ranks that this rank
// waits for. In a chain of waits that may be a rank which waits for the stopped one.
RankSet Watchdog::causes(const RankSet& missing, uint64_t sequence, int64_t silence_us) const {
    RankSet absent;
    for (int other = 0; other < segment_->ranks(); ++other) {
        const RankRow& row = segment_->row(other);
        if (other == rank_ ||
            (!segment_->local(other) && row.remote.heard_us.load(std::memory_order_acquire) < now_us() - silence_us))
            continue;
        const auto report = row.position.read();
        if (report &&
            (report->entered < sequence || (report->finished < sequence && Liveness(*segment_).stopped(other))))
            absent.insert(other);
    }
    if (!absent.empty()) return absent;
    // All have made the call. A rank that stays in a user's function may hold up all the others.
    RankSet inside;
    for (int other = 0; other < segment_->ranks(); ++other) {
        const int64_t since_us = segment_->row(other).in_function_us.load(std::memory_order_relaxed);
        if (other != rank_ && since_us != 0 && now_us() - since_us >= silence_us / 2) inside.insert(other);
    }
    return inside.empty() ? missing : inside;
}

Status Watchdog::look(const RankSet& missing, uint64_t sequence, const Operation& operation, int64_t silence_us,
                      bool connecting) {
    if (segment_->aborted()) return FailureRecord(*segment_).status();
    const int64_t since_us = now_us() - silence_us;
    if (since_us > std::exchange(silent_since_us_, since_us) + 1000) gone_.clear();  // there was progress in between
    if (silence_us >= compare_after_us) health_.ask();
    Status found;
    missing.for_each([&](int other) {
        if (found && (silence_us >= compare_after_us || !Liveness(*segment_).alive(other)))
            found = look_at(other, sequence, operation, silence_us);
    });
    if (found && silence_us >= compare_after_us) found = look_beyond(missing, sequence, operation, silence_us);
    if (found) found = look_at_leaders(missing, silence_us, connecting, gone_);
    if (!found) return found;
    const bool warn = limits_.warn_us > 0 && silence_us >= limits_.warn_us && !warned_;
    const bool late = limits_.timeout_us > 0 && silence_us >= limits_.timeout_us;
    if (!warn && !late) return ok();
    std::string who;
    int named = 0, first = -1;
    causes(missing, sequence, silence_us).for_each([&](int other) {
        if (first < 0) first = other;
        if (++named <= 8)
            who += fmt::format("{}{}", who.empty() ? "" : "; ", position_text(*segment_, other, sequence));
    });
    if (named > 8) who += fmt::format("; and {} more", named - 8);
    who += lost_packets();
    if (late)
        return fail(error::timeout_collective,
                    "rank {} waited {} in operation {}{}, {}, the deadline ({}) is {} ms: {}", rank_,
                    seconds_text(silence_us), sequence, name(), operation.text(), option_, limits_.timeout_us / 1000,
                    who)
            .about({.rank = first, .peer = rank_, .operation = operation.collective, .sequence = sequence});
    warned_ = true;
    WEFT_LOG_RANK(rank_, warn, coll, "waits since {} in operation {}{}, {}: {}", seconds_text(silence_us), sequence,
                  name(), operation.text(), who);
    return ok();
}

// The check of ranks that owe point-to-point messages or one-sided calls.
// The data of a remote rank may arrive after the report of its end: soon if it died, later if it left in order.
Status Watchdog::look_at_partners(const RankSet& missing, int64_t silence_us, const Owed& owed, bool connecting,
                                  const char* awaited) {
    if (segment_->aborted()) return FailureRecord(*segment_).status();
    if (silence_us >= compare_after_us) health_.ask();
    const int64_t since_us = silence_us == INT64_MAX ? partners_silent_since_us_ : now_us() - silence_us;
    if (since_us > std::exchange(partners_silent_since_us_, since_us) + 1000) departed_.clear();
    Status found;
    missing.for_each([&](int other) {
        const RankState state = segment_->row(other).state.load(std::memory_order_acquire);
        const bool left = state == RankState::left, here = segment_->local(other);
        if (!found || (!left && Liveness(*segment_).alive(other))) return;
        if (!here && silence_us < (left ? RemoteHealth::departed_us : RemoteHealth::settled_us)) return;
        // Its last data may have come since this rank last polled, so the failure waits for the next check.
        if (!departed_.contains(other)) return departed_.insert(other);
        const LossRecord& loss = segment_->header().loss;
        const bool lost = !left && !here && loss.state.load(std::memory_order_acquire) &&
                          loss.host == segment_->rank_info(other).host;
        found = fail(lost   ? error::host_lost
                     : left ? error::rank_left
                            : error::rank_died,
                     "{}{} {} and {}", lost ? fmt::format("{}; ", loss.sentence) : "", segment_->name_of(other),
                     left ? "left the communicator" : "died", owed(other))
                    .about({.rank = other, .peer = rank_});
    });
    if (!found || silence_us == INT64_MAX) return found;
    WEFT_TRY(look_at_leaders(missing, silence_us, connecting, departed_));
    const bool warn = limits_.warn_us > 0 && silence_us >= limits_.warn_us && !warned_;
    const bool late = limits_.timeout_us > 0 && silence_us >= limits_.timeout_us;
    if (!warn && !late) return ok();
    std::string who;
    int named = 0, first = -1;
    missing.for_each([&](int other) {
        if (first < 0) first = other;
        if (++named <= 8)
            who += fmt::format("{}{}, and {}", who.empty() ? "" : "; ", position_text(*segment_, other, UINT64_MAX),
                               owed(other));
    });
    if (named > 8) who += fmt::format("; and {} more", named - 8);
    who += lost_packets();
    const double seconds = double(silence_us) / 1e6;
    if (late)
        return fail(error::timeout_message, "rank {} waited {:.1f} s for {}{}, the deadline ({}) is {} ms: {}", rank_,
                    seconds, awaited, name(), option_, limits_.timeout_us / 1000, who)
            .about({.rank = first, .peer = rank_});
    warned_ = true;
    WEFT_LOG_RANK(rank_, warn, coll, "waits since {:.1f} s for {}{}: {}", seconds, awaited, name(), who);
    return ok();
}

}  // namespace weft::internal
