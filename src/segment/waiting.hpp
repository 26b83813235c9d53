// waiting.hpp: what a rank does while others have not come: the rule that decides between spinning, yielding and
// sleeping. It knows which processor each missing rank was last seen on: one that shares ours can only run if we yield,
// so we do at once; for others we spin, less long where some rank shares our core. After long silence the rank sleeps;
// whoever publishes something wakes those that say they do.
#pragma once
#include <poll.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "src/segment/partner_wait.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

// Thread-bound to the rank's driving thread. One for each rank, kept across calls.
class Waiting {
  public:
    // sleep_us: silence after which the rank sleeps.
    Waiting(Segment& segment, int rank, int64_t sleep_us);
    ~Waiting() { stir(); }

    // Publishes the processor we run on; a comparison if it has not changed.
    void seen_here() {
        const int cpu = current_cpu();
        if (cpu != last_cpu_) [[unlikely]] {
            last_cpu_ = cpu;
            segment_->row(rank_).cpu.store(cpu + 1, std::memory_order_relaxed);
        }
    }

    // One step of waiting: nothing has moved since the last call. Returns true when it is time to look for what is
    // wrong: the abort word is set, or the silence has lasted another while. may_sleep: false when the thread drives
    // other ranks too, which nobody would wake it for; it then only dozes.
    bool pause(const RankSet& missing, bool may_sleep = true);
    // The same where what is missing comes, or comes too, over sockets: `add_descriptors` says which. Every look at a
    // socket is a system call, so where others want this core there is little spinning before the kernel's poll.
    using AddDescriptors = std::function<void(std::vector<pollfd>&)>;
    bool pause_on_sockets(const RankSet& missing, bool may_sleep, const AddDescriptors& add_descriptors);

    // After pause() has returned true: others shall know what this wait is for, until something moves.
    void tell(const PartnerWait& wait);
    // Something moved: the next silence begins anew.
    void stir() {
        polls_ = 0;
        if (announced_) [[unlikely]]
            withdraw();
    }
    // How long nothing has moved, as of the last pause() that looked at the clock.
    int64_t silence_us() const { return silence_us_; }

  private:
    bool look(bool may_sleep);
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
    uint64_t polls_ = 0;      // since something moved
    bool armed_ = false;      // our row says that we sleep
    bool told_ = false;       // or what we wait for
    bool announced_ = false;  // one of them, perhaps
    bool crowded_ = false;    // others run on our core
    int crowded_waits_ = 0;   // for so many more waits that is taken for granted
    std::vector<pollfd> descriptors_;
    int64_t since_us_ = 0;
    int64_t silence_us_ = 0;
    int64_t next_look_us_ = 0;
};

}  // namespace weft::internal
