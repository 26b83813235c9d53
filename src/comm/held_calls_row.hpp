// held_calls_row.hpp: the calls that an open group of a rank holds, in its row of the segment (segment/rank_row.hpp). Plain
// data.
#pragma once
#include <atomic>
#include <cstdint>

namespace weft::internal {

// The rank writes it while a group collects calls.
struct HeldCallsRow {
    std::atomic<uint32_t> calls;
    std::atomic<int64_t> since_us;
};

}  // namespace weft::internal
