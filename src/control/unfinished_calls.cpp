#include "src/control/unfinished_calls.hpp"

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/segment/liveness.hpp"

namespace weft::internal {

static constexpr int64_t silence_us = 2'000'000;  // of a remote rank that does not count any more

bool has_kernels(const Segment& segment, int rank) {
    const RankRow& row = segment.row(rank);
    return row.gpu.facts.use != DeviceFacts::none && !row.gpu.left.load(std::memory_order_acquire) &&
           row.state.load(std::memory_order_acquire) == RankState::left && Liveness(segment).alive(rank);
}

bool needed_by_calls(const Segment& segment, int64_t ending_us) {
    uint64_t last = 0;
    for (const int rank : segment.locals())
        if (has_kernels(segment, rank)) return true;
    for (const int rank : segment.locals()) last = std::max(last, segment.row(rank).position.finished.load());
    for (int rank = 0; rank < segment.ranks() && last > 0; ++rank) {
        const RankRow& row = segment.row(rank);
        const RankState state = row.state.load(std::memory_order_acquire);
        if (state == RankState::left || state == RankState::dead) continue;
        const auto position = row.position.read();
        if (position && position->finished >= last) continue;
        if (segment.local(rank) ? Liveness(segment).alive(rank)
                                : ending_us < silence_us || now_us() - row.remote.heard_us < ending_us)
            return true;
    }
    return false;
}

}  // namespace weft::internal
