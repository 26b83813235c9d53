#include "algorithms/algorithm.hpp"

#include <algorithm>

namespace weft::internal {

const char* UserAlgorithm::refusal(const Layout& layout) const {
    if (layout.ranks != schedules[0].ranks) return "is for another number of ranks";
    for (const Schedule& schedule : schedules)
        if (std::any_of(schedule.shared_ranks.begin(), schedule.shared_ranks.end(),
                        [&](int32_t other) { return layout.host_of(other) != layout.host_of(schedule.rank); }))
            return "has a flag block of ranks on several hosts";
    return nullptr;
}

}  // namespace weft::internal
