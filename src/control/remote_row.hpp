// remote_row.hpp: the reports about a rank of another host, in its row of the segment (segment/rank_row.hpp). Plain data.
#pragma once
#include <atomic>
#include <cstdint>

namespace weft::internal {

// Written by this host's leader.
struct RemoteRow {
    // When the rank's leader last reported it, by this host's monotonic clock; 0: never.
    std::atomic<int64_t> heard_us;
    // The leader's last answer was true at this time or later (release).
    std::atomic<int64_t> known_us;
    std::atomic<uint32_t> stopped;  // 1: its process was stopped at the last report
    // 1: another process, the leader of its host, died, and nothing else is known of the rank (release, before
    // RankRow::state).
    std::atomic<uint32_t> out_of_sight;
    // 1: its process led its host and has ended, in order or not (release, pairs with EndedLeaders).
    std::atomic<uint32_t> leader_ended;
};

// The first host that ended without a shutdown frame, as this host's leader learned it. Written once.
struct LossRecord {
    std::atomic<uint32_t> state;  // 1: written (release, pairs with Watchdog::look_at())
    int32_t host;
    char sentence[500];
};

}  // namespace weft::internal
