// watchdog.hpp: checks the other ranks while a rank waits for long: dead ranks, ranks that have left or made another
// call, and late ranks. Reads shared memory and, for living ranks, the kernel; never on the hot path.
#pragma once
#include <algorithm>
#include <functional>

#include "src/base/rank_set.hpp"
#include "src/control/remote_health.hpp"
#include "src/segment/segment.hpp"

namespace weft::internal {

struct WatchdogLimits {
    int64_t warn_us = 0;     // 0: never
    int64_t timeout_us = 0;  // 0: never
    int64_t repeat_us = 0;   // Transport::repeat_us() of the slowest transport

    // The age at which data of a remote rank that has finished its call will not come any more. A device reports before.
    int64_t in_flight_us() const { return std::max<int64_t>(45'000'000, repeat_us + repeat_us / 2); }
};

// Thread-bound to the waiting rank.
class Watchdog {
  public:
    Watchdog(Segment& segment, int rank, std::string communicator, WatchdogLimits limits)
        : segment_(&segment), health_(segment), rank_(rank), communicator_(std::move(communicator)), limits_(limits) {}

    // Sets new limits; `option` is the name of the option that sets the deadline.
    void limit(WatchdogLimits limits, const char* option) {
        limits_ = limits;
        option_ = option;
    }
    // Call it after `silence_us` without progress in `operation`, waiting for `missing`. The caller reports a failure to
    // all ranks. `connecting`: the rank waits for connection info.
    Status look(const RankSet& missing, uint64_t sequence, const Operation& operation, int64_t silence_us,
                bool connecting);
    // The same for messages between two ranks. `owed`: the part of a sentence that follows the name of a `missing` rank.
    // With a silence of INT64_MAX only ranks that died or left count.
    using Owed = std::function<std::string(int rank)>;
    Status look_at_partners(const RankSet& missing, int64_t silence_us, const Owed& owed, bool connecting = false,
                            const char* awaited = "messages");
    // The data of `other` does not fit this rank's call: names both calls. Waits briefly for the other rank to publish
    // its call. `of`: the operation of the message that does not fit; 0: it was no message.
    Status mismatch(int other, uint64_t sequence, const Operation& operation, uint64_t of = 0);
    // The cause of a broken connection in `operation`: a rank that died, left or made another call. ok: none is known.
    Status cause(uint64_t sequence, const Operation& operation);
    // Calls `cause` as long as other hosts may still report one.
    Status await_cause(const std::function<Status()>& cause) const;
    // A new call begins: the warning may be logged again.
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
    // Ranks that share no flag in an operation (in a ring, not the flag block) compare their calls after this long.
    static constexpr int64_t compare_after_us = 50'000;
    Status look_at(int other, uint64_t sequence, const Operation& operation, int64_t silence_us);
    Status look_beyond(const RankSet& missing, uint64_t sequence, const Operation& operation, int64_t silence_us);
    Status look_at_leaders(const RankSet& missing, int64_t silence_us, bool connecting, RankSet& seen) const;
    RankSet causes(const RankSet& missing, uint64_t sequence, int64_t silence_us) const;
    std::string name() const;
    static std::string lost_packets();

    Segment* segment_;
    RemoteHealth health_;
    int rank_;
    std::string communicator_;
    WatchdogLimits limits_;
    const char* option_ = "WEFT_TIMEOUT_MS";
    bool warned_ = false;
    RankSet finished_;             // missing ranks that had finished the operation at the last check
    RankSet gone_;                 // missing remote ranks that were dead at the last check
    int64_t silent_since_us_ = 0;  // at the last check
    RankSet departed_;             // missing partners that were dead or had left at the last check
    int64_t partners_silent_since_us_ = 0;
};

}  // namespace weft::internal
