// rank_order_calls.hpp: every collective that reduces, on numbers whose sum depends on order and rounding. Results
// equal the sum in rank order, rounded once, as deterministic mode promises.
#pragma once
#include <weft/weft.h>

#include <cstdint>
#include <string>

namespace weft::internal::test {

struct RankOrderResult {
    std::string wrong;  // a call that failed; empty: none did
    int calls = 0;
    int differing = 0;  // calls whose result on this rank has other bits
};

// Runs this rank's part; every rank draws the same calls from the seed.
RankOrderResult run_rank_order_calls(weftComm_t comm, uint32_t seed, size_t most_elements);

}  // namespace weft::internal::test
