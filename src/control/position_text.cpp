#include "src/control/position_text.hpp"

#include <iterator>

#include "src/base/clock.hpp"
#include "src/control/remote_health.hpp"
#include "src/segment/liveness.hpp"
#include "src/segment/partner_wait.hpp"

namespace weft::internal {

std::string seconds_text(int64_t us) { return fmt::format("{:.1f} s", double(us) / 1e6); }

namespace {

// The reason of a wait outside of collectives; empty: unknown.
std::string beside_collectives(const RankRow& row) {
    // By PartnerWait::WaitReason.
    static constexpr const char* waits[] = {
        "waits for a message of rank {} (weftRecv)",     "waits for rank {} to take a message (weftSend)",
        "waits for a message of rank {} (weftSendRecv)", "waits for rank {} to take a message (weftSendRecv)",
        "waits for signals of rank {} (weftWaitSignal)", "waits for rank {} in a one-sided call"};
    std::string text;
    const auto wait = PartnerWait::of(row.partner_wait.load(std::memory_order_relaxed));
    if (const int64_t since_us = row.partner_wait_us.load(std::memory_order_relaxed);
        since_us != 0 && wait.kind < std::size(waits))
        text += fmt::format(", {} since {}", fmt::format(fmt::runtime(waits[wait.kind]), wait.peer),
                            seconds_text(now_us() - since_us));
    if (const uint32_t calls = row.held.calls.load(std::memory_order_relaxed); calls != 0)
        text += fmt::format(", holds {} call{} in an open group since {}: weftGroupEnd is missing", calls,
                            calls == 1 ? "" : "s",
                            seconds_text(now_us() - row.held.since_us.load(std::memory_order_relaxed)));
    return text;
}

}  // namespace

std::string position_text(const Segment& segment, int other, uint64_t sequence) {
    const RankRow& row = segment.row(other);
    const auto report = row.position.read();
    std::string text = segment.name_of(other);
    const int64_t heard_us = row.remote.heard_us.load(std::memory_order_acquire),
                  ago_us = segment.local(other) ? 0 : now_us() - heard_us;
    if (!segment.local(other) && heard_us == 0) return text + " has not been reported yet";
    if (ago_us > 2 * RemoteHealth::ask_apart_us + 1'000'000)
        text += fmt::format(" has not been reported for {}", seconds_text(ago_us));
    else
        text += Liveness(segment).stopped(other) ? " is stopped (SIGSTOP or a debugger)" : " is alive";
    const std::string beside = beside_collectives(row);
    if (!report || report->entered == 0)
        return text + (beside.empty() ? ", has not called anything yet" : beside + ", has called no collective yet");
    if (!report->inside())
        return text +
               fmt::format("{}, last operation {}", beside.empty() ? ", outside Weft" : beside, report->finished);
    text += beside;
    if (const int64_t since_us = row.in_function_us.load(std::memory_order_relaxed); since_us != 0)
        text += fmt::format(", in the function of a user's reduction since {}", seconds_text(now_us() - since_us));
    if (report->entered == sequence) return text + ", inside this operation";
    return text + fmt::format(", inside operation {} ({})", report->entered, report->operation.text());
}

}  // namespace weft::internal
