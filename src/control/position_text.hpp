// position_text.hpp: the part of a sentence that says where a rank is, as this host knows. Reentrant.
#pragma once
#include <cstdint>
#include <string>

#include "src/segment/segment.hpp"

namespace weft::internal {

// "rank 3 (pid 7 on node1) is alive, outside Weft, last operation 4". `sequence`: the operation of the rank that asks.
std::string position_text(const Segment& segment, int other, uint64_t sequence);
// "1.5 s"
std::string seconds_text(int64_t us);

}  // namespace weft::internal
