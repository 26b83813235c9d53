// watchdog.hpp: what is looked at when a rank has waited for long: has somebody died, left, or called something else;
// who is late, and where is everyone. Looks at shared memory and, for the living, at the kernel; never on the hot path.
#pragma once
#include <functional>

#include "src/control/remote_health.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct WatchdogLimits {
    int64_t warn_us = 0;     // 0: never
    int64_t timeout_us = 0;  // 0: never
};

// Thread-bound to the rank it watches for.
class Watchdog {
  public:
    Watchdog(Segment& segment, int rank, std::string communicator, WatchdogLimits limits)
        : segment_(&segment), health_(segment), rank_(rank), communicator_(std::move(communicator)), limits_(limits) {}

    // From here on other limits; `option` is the name of what sets the deadline.
    void limit(WatchdogLimits limits, const char* option) {
        limits_ = limits;
        option_ = option;
    }
    // After `silence_us` without progress in `operation`, waiting for `missing`. A failure is what all ranks shall be
    // told.
    Status look(const RankSet& missing, uint64_t sequence, const Operation& operation, int64_t silence_us);
    // The same for messages between two ranks each, whose `missing` ranks owe something: in words that follow a rank's
    // name. After silence of INT64_MAX only who died or left counts.
    using Owed = std::function<std::string(int rank)>;
    Status look_at_partners(const RankSet& missing, int64_t silence_us, const Owed& owed,
                            const char* awaited = "messages");
    // Another rank's words do not fit ours: the sentence that names both calls. Waits briefly for the other to say what
    // it called. `of`: the operation of the message that does not fit, 0: it was none.
    Status mismatch(int other, uint64_t sequence, const Operation& operation, uint64_t of = 0);
    // What may be behind a broken connection in `operation`: who died, left or called something else, as far as it is
    // known here. ok: nothing.
    Status cause(uint64_t sequence, const Operation& operation);
    // What `cause` finds, asked as long as others may still tell it.
    Status await_cause(const std::function<Status()>& cause) const;
    // A new call: the warning may come again.
    void begin() {
        warned_ = false;
        if (!finished_.empty()) [[unlikely]]
            finished_.clear();
        if (!gone_.empty()) [[unlikely]]
            gone_.clear();
        if (!departed_.empty()) [[unlikely]]
            departed_.clear();
    }

  private:
    // Ranks that share no word of memory in an operation (a ring beside a flag block) compare calls only after this long.
    static constexpr int64_t compare_after_us = 50'000;
    Status look_at(int other, uint64_t sequence, const Operation& operation, int64_t silence_us);
    Status look_beyond(const RankSet& missing, uint64_t sequence, const Operation& operation, int64_t silence_us);
    RankSet causes(const RankSet& missing, uint64_t sequence, int64_t silence_us) const;
    std::string position_text(int other, uint64_t sequence) const;
    std::string name() const;
    static std::string lost_packets();

    Segment* segment_;
    RemoteHealth health_;
    int rank_;
    std::string communicator_;
    WatchdogLimits limits_;
    const char* option_ = "WEFT_TIMEOUT_MS";
    bool warned_ = false;
    RankSet finished_;             // missing ranks that had finished the operation when looked at before
    RankSet gone_;                 // missing ranks of other hosts that were dead at the last look
    int64_t silent_since_us_ = 0;  // at the last look
    RankSet departed_;             // missing partners that were dead or had left at the last look at them
    int64_t partners_silent_since_us_ = 0;
};

}  // namespace weft::internal
