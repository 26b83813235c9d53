#include "src/segment/waiting.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/cancellation.hpp"
#include "src/base/cpu.hpp"

namespace weft::internal {

namespace {

// About as long as two yields with no other runnable thread.
constexpr uint32_t polls_between_yields = 128;
// Ranks last seen on this core may have work while this rank waits for another core. One wait in waits_between_surveys
// checks which ranks are on which core.
constexpr uint32_t polls_between_yields_shared = 16;
constexpr int waits_between_surveys = 256;
constexpr uint32_t polls_between_clocks = 64;  // of polls that yield: a clock read costs much less than a thread switch
// For polls of sockets and queues. A poll of a socket is a system call, and a yield follows. A queue in memory is polled
// several times before a yield. If a yield and the polls before it take more than crowded_wait_us on average, other
// threads, usually ranks, run on this core. If one yield takes more than crowded_yield_ns, another process used a time
// slice here. crowded_memory: the number of waits that remember this.
// A rank that sleeps in the kernel's poll wakes late, so it sleeps early only on a crowded core.
constexpr int64_t ns_between_yields = 1'000;
constexpr int64_t yields_between_averages = 16;
constexpr int64_t crowded_wait_us = 4, crowded_yield_ns = 1'000'000;
constexpr int crowded_memory = 64;
constexpr int64_t first_look_us = 20'000;     // silence after which the rank checks for dead peers
constexpr int64_t slowest_look_us = 250'000;  // bounds the detection of a death to a second after any silence
constexpr int64_t doze_us = 200;
constexpr int64_t sleep_slice_us = 20'000;  // a sleeping rank polls for failures this often in any case

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

inline void spin_once() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// A publisher stores and then loads `sleepers`; a rank that goes to sleep does the reverse. Without a fence on both
// sides each may miss the other. The sleeper pays for both, since the publisher is on the hot path: a global expedited
// membarrier makes the processors of every registered process execute a full fence.
struct Membarrier {
    bool works = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
    void everywhere() const {
        if (works) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
        // Without kernel support a wake-up can be missed; then sleep_slice_us bounds the sleep.
    }
};
const Membarrier& membarrier() {
    static const Membarrier instance;
    return instance;
}

}  // namespace

Waiting::Waiting(Segment& segment, int rank, int64_t sleep_us) : segment_(&segment), rank_(rank), sleep_us_(sleep_us) {
    (void)membarrier();  // registers this process as a publisher
}

int Waiting::current_cpu() { return weft::internal::current_cpu(); }

bool Waiting::pause(const RankSet& missing, bool may_sleep) {
    if (polls_ == 0) silence_ = {};
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
    // A thread that drives several ranks sees them all on its core, and advances them itself.
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

bool Waiting::pause_on_sockets(const RankSet& missing, bool may_sleep, const AddWakeups& add_wakeups) {
    bool here = false, remote = false;
    missing.for_each([&](int rank) { (segment_->local(rank) ? here : remote) = true; });
    if (!remote) return pause(missing, may_sleep);
    if (armed_) disarm();
    if (polls_ == 0) {
        silence_ = {};
        assume_crowd();
    }
    if (silence_.since_us == 0) {  // pause() does not read the clock at first
        read_clock();
        yields_ = {silence_.now_ns};
    }
    seen_here();
    ++polls_;
    const int64_t before_ns = silence_.now_ns;
    const bool polls = !crowded_ && too_early_to_sleep();
    const bool yields = polls && before_ns - yields_.last_ns >= ns_between_yields;
    if (yields) {
        sched_yield();
    } else if (polls) {
        spin_once();
    } else {
        wakeups_.clear();
        add_wakeups(wakeups_);
        // Neither flags in shared memory nor the other ranks of this thread wake this poll.
        const bool dozes = here || !may_sleep || wakeups_.by_time;
        const timespec slice{0, wakeups_.ready ? 0 : (dozes ? doze_us : sleep_slice_us) * 1000};
        ppoll(wakeups_.descriptors.data(), nfds_t(wakeups_.descriptors.size()), &slice, nullptr);
    }
    const int64_t now = read_clock();
    if (yields) {
        // Other threads ran during the yield and need this core. The scheduler prefers a thread that wakes to one that
        // yields.
        const bool slice = silence_.now_ns - before_ns > crowded_yield_ns;
        if (slice) crowded_waits_ = crowded_memory;
        ++yields_.number;
        crowded_ = slice || (yields_.number % yields_between_averages == 0 &&
                             silence_.us - silence_.served_us > yields_.number * crowded_wait_us);
        yields_.last_ns = silence_.now_ns;
    }
    return look_due(now);
}

bool Waiting::served() {
    if (armed_) disarm();
    if (polls_ == 0) silence_ = {};
    polls_ = 1;
    assume_crowd();
    const int64_t now = read_clock();
    silence_.served_us = silence_.us;
    yields_ = {silence_.now_ns};
    return look_due(now);
}

void Waiting::assume_crowd() {
    crowded_ = crowded_waits_ > 0;
    if (crowded_) --crowded_waits_;
}

int64_t Waiting::read_clock() {
    silence_.now_ns = now_ns();
    const int64_t now = silence_.now_ns / 1000;
    if (silence_.since_us == 0) {
        silence_.since_us = now;
        silence_.next_look_us = now + first_look_us;
    }
    silence_.us = now - silence_.since_us;
    return now;
}

// True: the caller must check for failures.
bool Waiting::look_due(int64_t now) {
    if (segment_->aborted()) return true;
    if (now < silence_.next_look_us) return false;
    silence_.next_look_us = now + std::clamp<int64_t>(silence_.us / 16, first_look_us, slowest_look_us);
    return true;
}

// Reads the clock and decides on sleeping. True: the caller must check for failures.
bool Waiting::look(bool may_sleep) {
    const int64_t now = read_clock();
    if (too_early_to_sleep()) return look_due(now);
    if (!may_sleep) {
        const timespec doze{0, doze_us * 1000};
        const CancelHeld held;
        nanosleep(&doze, nullptr);
    } else if (!armed_) {
        // Announce the sleep, let the caller poll once more, then sleep: in this order no wake-up is missed.
        segment_->row(rank_).sleeping.store(1, std::memory_order_relaxed);
        segment_->header().sleepers.fetch_add(1);
        membarrier().everywhere();
        armed_ = announced_ = true;
    }
    return look_due(now);
}

void Waiting::sleep() {
    auto& word = segment_->row(rank_).sleeping;
    const timespec slice{0, sleep_slice_us * 1000};
    syscall(SYS_futex, &word, FUTEX_WAIT, 1, &slice, nullptr, 0);
    word.store(1, std::memory_order_relaxed);  // the next pause() may sleep again
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
    row.partner_wait_us.store(silence_.since_us, std::memory_order_relaxed);
}

void Waiting::withdraw() {
    announced_ = false;
    if (armed_) disarm();
    if (std::exchange(told_, false)) segment_->row(rank_).partner_wait_us.store(0, std::memory_order_relaxed);
}

}  // namespace weft::internal
