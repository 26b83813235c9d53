// window_row.hpp: a rank's one-sided access in its row of the segment (segment/rank_row.hpp). Plain data.
#pragma once
#include <atomic>
#include <cstdint>

namespace weft::internal {

struct WindowRow {
    // One more than the rank whose memory a one-sided call of this rank accesses; may be this rank. 0: none.
    std::atomic<int32_t> touching;
};

}  // namespace weft::internal
