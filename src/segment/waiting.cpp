#include "src/segment/waiting.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "src/base/cancellation.hpp"
#include "src/base/clock.hpp"
#include "src/base/cpu.hpp"

namespace weft::internal {

namespace {

// Some 0.7 us of spinning, about what a yield to nobody costs twice over.
constexpr uint32_t polls_between_yields = 128;
// Likewise where other ranks have last been seen on this core: they may have work while we wait for one elsewhere. Who is
// where is looked at in one of so many waits.
constexpr uint32_t polls_between_yields_shared = 16;
constexpr int waits_between_surveys = 256;
constexpr uint32_t polls_between_clocks = 64;  // of those that yield; a clock costs 26 ns, a switch a microsecond
// Of polls of sockets, each with a yield: from how long a poll on average others must have run on this core, ranks as a
// rule; from how long a single one it was a time slice, of a stranger; and how many waits that is remembered for.
// Asleep in the kernel's poll a rank is woken tens of microseconds late, so it goes there soon only if it must.
constexpr uint64_t polls_between_averages = 16;
constexpr int64_t crowded_poll_us = 4, crowded_yield_us = 1'000;
constexpr int crowded_memory = 64;
constexpr int64_t first_look_us = 20'000;     // silence that is worth asking who is alive
constexpr int64_t slowest_look_us = 250'000;  // a death is noticed within a second, however long it was quiet before
constexpr int64_t doze_us = 200;
constexpr int64_t sleep_slice_us = 20'000;  // a sleeper looks around this often whatever happens

inline void spin_once() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Publishing is a store followed by a load of `sleepers`; going to sleep is the mirror image. Without a fence on both
// sides each may miss the other. The publisher's fence would cost 10-20 ns a call, so the sleeper pays for both: a
// global expedited membarrier makes every registered process's processors pass a full fence.
struct Membarrier {
    bool works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    void everywhere() const {
        if (works) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
        // Where the kernel has none, a wake-up can be missed: then the slice of sleep_slice_us ends the sleep.
    }
};
const Membarrier& membarrier() {
    static const Membarrier instance;
    return instance;
}

}  // namespace

Waiting::Waiting(Segment& segment, int rank, int64_t sleep_us) : segment_(&segment), rank_(rank), sleep_us_(sleep_us) {
    (void)membarrier();  // registers this process as one that publishes
}

int Waiting::current_cpu() { return weft::internal::current_cpu(); }

bool Waiting::pause(const RankSet& missing, bool may_sleep) {
    if (polls_ == 0) {
        since_us_ = 0;
        silence_us_ = 0;
    }
    ++polls_;
    seen_here();
    bool same_core = false;
    missing.for_each(
        [&](int rank) { same_core |= segment_->row(rank).cpu.load(std::memory_order_relaxed) == last_cpu_ + 1; });
    if (armed_) {
        sleep();
        return look(may_sleep);
    }
    if (polls_ == polls_between_yields_shared && --waits_to_survey_ < 0) survey();
    // Who drives other ranks, too, sees them on its core, and moves them itself.
    const bool shared = shares_core_ && may_sleep;
    if (same_core || polls_ % (shared ? polls_between_yields_shared : polls_between_yields) == 0) {
        sched_yield();
        if (polls_ % polls_between_clocks == 0) return look(may_sleep);
        return segment_->aborted();
    }
    spin_once();
    return false;
}

void Waiting::survey() {
    waits_to_survey_ = waits_between_surveys;
    const std::vector<int>& all = segment_->locals();
    shares_core_ = std::any_of(all.begin(), all.end(), [this](int rank) {
        return rank != rank_ && segment_->row(rank).cpu.load(std::memory_order_relaxed) == last_cpu_ + 1;
    });
}

bool Waiting::pause_on_sockets(const RankSet& missing, bool may_sleep, const AddDescriptors& add_descriptors) {
    bool here = false, remote = false;
    missing.for_each([&](int rank) { (segment_->local(rank) ? here : remote) = true; });
    if (!remote) return pause(missing, may_sleep);
    if (armed_) disarm();
    if (polls_ == 0) {
        crowded_ = crowded_waits_ > 0;
        if (crowded_) --crowded_waits_;
    }
    if (polls_ == 0 || since_us_ == 0) {  // pause() leaves the clock alone at first
        since_us_ = now_us();
        silence_us_ = 0;
        next_look_us_ = since_us_ + first_look_us;
    }
    seen_here();
    ++polls_;
    const int64_t before_us = since_us_ + silence_us_;
    const bool yields = !crowded_ && silence_us_ < sleep_us_;
    if (yields) {
        sched_yield();
    } else {
        descriptors_.clear();
        add_descriptors(descriptors_);
        // Words in shared memory wake nobody here, and neither do the other ranks that this thread drives.
        const timespec slice{0, (here || !may_sleep ? doze_us : sleep_slice_us) * 1000};
        ppoll(descriptors_.data(), nfds_t(descriptors_.size()), &slice, nullptr);
    }
    const int64_t now = now_us();
    silence_us_ = now - since_us_;
    if (yields) {
        // Others ran when we yielded: they need this core more than we do, and who wakes is let in before who yields.
        const bool slice = now - before_us > crowded_yield_us;
        if (slice) crowded_waits_ = crowded_memory;
        crowded_ = slice || (polls_ % polls_between_averages == 0 && silence_us_ > int64_t(polls_) * crowded_poll_us);
    }
    if (segment_->aborted()) return true;
    if (now < next_look_us_) return false;
    next_look_us_ = now + std::clamp<int64_t>(silence_us_ / 16, first_look_us, slowest_look_us);
    return true;
}

// Reads the clock; decides on sleeping; says whether to look for trouble.
bool Waiting::look(bool may_sleep) {
    const int64_t now = now_us();
    if (since_us_ == 0) {
        since_us_ = now;
        next_look_us_ = now + first_look_us;
    }
    silence_us_ = now - since_us_;
    if (silence_us_ >= sleep_us_ && !may_sleep) {
        const timespec doze{0, doze_us * 1000};
        const CancelHeld held;
        nanosleep(&doze, nullptr);
    } else if (silence_us_ >= sleep_us_ && !armed_) {
        // Announce, then let the caller look once more, then sleep: in this order nothing is missed.
        segment_->row(rank_).sleeping.store(1, std::memory_order_relaxed);
        segment_->header().sleepers.fetch_add(1);
        membarrier().everywhere();
        armed_ = announced_ = true;
    }
    if (segment_->aborted()) return true;
    if (now < next_look_us_) return false;
    next_look_us_ = now + std::clamp<int64_t>(silence_us_ / 16, first_look_us, slowest_look_us);
    return true;
}

void Waiting::sleep() {
    auto& word = segment_->row(rank_).sleeping;
    const timespec slice{0, sleep_slice_us * 1000};
    syscall(SYS_futex, &word, FUTEX_WAIT, 1, &slice, nullptr, 0);
    word.store(1, std::memory_order_relaxed);  // again, in case we sleep again
    membarrier().everywhere();
}

void Waiting::disarm() {
    armed_ = false;
    segment_->row(rank_).sleeping.store(0, std::memory_order_relaxed);
    segment_->header().sleepers.fetch_sub(1);
}

void Waiting::tell(const PartnerWait& wait) {
    told_ = announced_ = true;
    RankRow& row = segment_->row(rank_);
    row.partner_wait.store(wait.word(), std::memory_order_relaxed);
    row.partner_wait_us.store(since_us_, std::memory_order_relaxed);
}

void Waiting::withdraw() {
    announced_ = false;
    if (armed_) disarm();
    if (std::exchange(told_, false)) segment_->row(rank_).partner_wait_us.store(0, std::memory_order_relaxed);
}

}  // namespace weft::internal
