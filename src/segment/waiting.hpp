// waiting.hpp: decides whether a waiting rank spins, yields or sleeps.
// A missing rank that was last seen on this core can only run if this rank yields, so it yields at once. For other
// ranks it spins, for a shorter time if another rank shares its core. After a long silence it sleeps, and a rank that
// publishes wakes the announced sleepers.
#pragma once
#include <cstdint>
#include <functional>

#include "src/base/rank_set.hpp"
#include "src/base/wakeups.hpp"
#include "src/segment/partner_wait.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Time without progress.
struct Silence {
    int64_t since_us = 0, us = 0, next_look_us = 0;
    int64_t now_ns = 0;     // when the clock was last read
    int64_t served_us = 0;  // its length when a request of another rank was served last
};
// The yields of a wait for sockets: the last one (at first: the begin of the wait), and their number.
struct Yields {
    int64_t last_ns = 0, number = 0;
};

// One per rank, kept across calls. Thread-bound to the thread that drives the rank.
class Waiting {
  public:
    // sleep_us: the silence after which the rank sleeps.
    Waiting(Segment& segment, int rank, int64_t sleep_us);
    ~Waiting() { stir(); }

    // Publishes the processor of this thread; only a comparison if it has not changed.
    void seen_here() {
        const int cpu = current_cpu();
        if (cpu != last_cpu_) [[unlikely]] {
            last_cpu_ = cpu;
            segment_->row(rank_).cpu.store(cpu + 1, std::memory_order_relaxed);
        }
    }

    // One step of a wait without progress since the last call. True: the caller must check for failures, because the
    // abort flag is set or the silence has lasted long enough.
    // `may_sleep` is false if the thread drives other ranks too, whose progress would not wake it; it then only sleeps for
    // short times.
    bool pause(const RankSet& missing, bool may_sleep = true);
    // The same if sockets (`add_wakeups`) deliver some or all of the missing data. Each poll of a socket is a
    // system call, so on a crowded core the rank soon sleeps in the kernel's poll.
    using AddWakeups = std::function<void(Wakeups&)>;
    bool pause_on_sockets(const RankSet& missing, bool may_sleep, const AddWakeups& add_wakeups);

    // In place of pause(), after a step that served another rank's request: the silence lasts on, but the rank polls
    // anew, since more requests may follow. True as for pause().
    bool served();

    // After pause() has returned true: publishes what this wait is for, until there is progress.
    void tell(const PartnerWait& wait);
    // There was progress: the next silence begins.
    void stir() {
        polls_ = 0;
        if (announced_) [[unlikely]]
            withdraw();
    }
    // Time without progress, as of the last pause() that read the clock.
    int64_t silence_us() const { return silence_.us; }

  private:
    bool look(bool may_sleep);
    int64_t read_clock();
    bool look_due(int64_t now);
    void assume_crowd();
    bool too_early_to_sleep() const { return silence_.us - silence_.served_us < sleep_us_; }
    void survey();
    void sleep();
    void disarm();
    void withdraw();
    static int current_cpu();

    Segment* segment_;
    int rank_;
    int64_t sleep_us_;
    int last_cpu_ = -1;
    bool shares_core_ = false;  // as of the last survey()
    int waits_to_survey_ = 0;
    uint64_t polls_ = 0;      // since the last progress
    bool armed_ = false;      // our row announces that we sleep
    bool told_ = false;       // our row says what we wait for
    bool announced_ = false;  // armed_ or told_ may be set
    bool crowded_ = false;    // other threads run on our core
    int crowded_waits_ = 0;   // waits that assume crowded_ from the start
    Wakeups wakeups_;
    Silence silence_;
    Yields yields_;
};

}  // namespace weft::internal
