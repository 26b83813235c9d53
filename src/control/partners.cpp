// partners.cpp: the watchdog's check of ranks that owe point-to-point messages or one-sided calls.
#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/control/watchdog.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

// The data of a remote rank may arrive after the report of its end: soon if it died, later if it left in order.
Status Watchdog::look_at_partners(const RankSet& missing, int64_t silence_us, const Owed& owed, const char* awaited) {
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
    const bool warn = limits_.warn_us > 0 && silence_us >= limits_.warn_us && !warned_;
    const bool late = limits_.timeout_us > 0 && silence_us >= limits_.timeout_us;
    if (!warn && !late) return ok();
    std::string who;
    int named = 0, first = -1;
    missing.for_each([&](int other) {
        if (first < 0) first = other;
        if (++named <= 8)
            who += fmt::format("{}{}, and {}", who.empty() ? "" : "; ", position_text(other, UINT64_MAX), owed(other));
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
