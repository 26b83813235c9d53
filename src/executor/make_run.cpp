#include "src/executor/make_run.hpp"

#include "src/executor/inline_run.hpp"
#include "src/executor/one_shot.hpp"
#include "src/executor/step_machine.hpp"
#include "src/executor/two_shot.hpp"

namespace weft::internal {

std::unique_ptr<Run> make_run(const Plan& plan) {
    const std::vector<Block>& blocks = plan.schedule->blocks;
    if (blocks.size() == 1 && !blocks[0].instructions.empty() &&
        kind_of(blocks[0].instructions[0].opcode) == OpcodeKind::fused) {
        if (is_one_shot(*plan.schedule) && !plan.two_shot.exports_buffers) return std::make_unique<OneShot>(plan);
        return std::make_unique<TwoShot>(plan);
    }
    if (auto steps = InlineRun::steps_of(plan); !steps.empty())
        return std::make_unique<InlineRun>(plan, std::move(steps));
    return std::make_unique<StepMachine>(plan);
}

}  // namespace weft::internal
