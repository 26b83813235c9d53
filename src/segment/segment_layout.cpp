#include "src/segment/segment_layout.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "src/base/shared_memory.hpp"

namespace weft::internal {

size_t SegmentLayout::affordable_heap_bytes(int ranks) {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return heap_bytes_most;
    const size_t page = page_bytes();
    return std::clamp(size_t(limit.rlim_cur) / 4 / size_t(ranks + 1) / page * page, heap_bytes_least, heap_bytes_most);
}

}  // namespace weft::internal
