// unfinished_calls.hpp: whether other ranks still need this host at the end of its process.
#pragma once
#include "src/segment/segment.hpp"

namespace weft::internal {

// Of a rank of this host that has left: its kernels still run. The rank reports their end in GpuRow::left.
bool has_kernels(const Segment& segment, int rank);
// Whether a rank is still in a call that this host's ranks have finished. `since_us`: when the process began to end.
// Remote ranks without a report since then count for two seconds only. `ending_us`: how long the process has been ending.
bool needed_by_calls(const Segment& segment, int64_t ending_us);

}  // namespace weft::internal
