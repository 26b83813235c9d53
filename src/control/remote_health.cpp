#include "src/control/remote_health.hpp"

#include "src/base/clock.hpp"
#include "src/control/ended_leaders.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

constexpr int64_t cause_patience_us = 400'000;     // some ticks of the leaders
constexpr int64_t health_patience_us = 5'000'000;  // for living leaders that have no processor

void RemoteHealth::ask() {
    if (segment_->one_host()) return;
    const int64_t now = now_us();
    int64_t due = next_question_us_.load(std::memory_order_relaxed);
    if (now < due || !next_question_us_.compare_exchange_strong(due, now + ask_apart_us)) return;
    segment_->header().health_requests.fetch_add(1, std::memory_order_release);
    segment_->doorbell().ring();
}

bool RemoteHealth::since(int64_t since_us) const {
    const EndedLeaders ended(*segment_);
    for (int other = 0; other < segment_->ranks(); ++other) {
        const RankRow& row = segment_->row(other);
        if (!segment_->local(other) && Liveness(*segment_).alive(other) &&
            row.state.load(std::memory_order_acquire) != RankState::left &&
            row.remote.known_us.load(std::memory_order_acquire) < since_us && ended.on_the_way_to(other) < 0)
            return false;
    }
    return true;
}

bool RemoteHealth::cause_may_come(int64_t broken_us) const {
    const int64_t waited_us = now_us() - broken_us;
    return !segment_->aborted() && waited_us < health_patience_us &&
           (waited_us < cause_patience_us || !since(broken_us));
}

}  // namespace weft::internal
