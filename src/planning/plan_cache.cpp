#include "src/planning/plan_cache.hpp"

#include "src/executor/step_machine.hpp"

namespace weft::internal {

uint64_t PlanCache::heap_bytes() const {
    uint64_t bytes = sizeof *this;
    for (const auto& [key, prepared] : plans_)
        bytes += sizeof *prepared + sizeof(StepMachine) + size_t(prepared->plan.schedule->ranks) * 6 * sizeof(void*) +
                 (prepared->plan.scaled() ? size_t(prepared->plan.schedule->parts()) * prepared->plan.tile_bytes : 0);
    return bytes;
}

}  // namespace weft::internal
