#include "src/simulator/step_flows.hpp"

#include <algorithm>

namespace weft::internal {

int32_t start_flows(const MovingStep& step, const RankCosts& costs, SimulatedLinks& links, double now_us) {
    const Schedule& schedule = step.schedule;
    const Instruction& instruction = step.instruction;
    double most = combines(instruction.opcode) ? costs.reduce_bytes_per_us : costs.copy_bytes_per_us;
    most /= step.slowness;
    int32_t flows = 0;
    const auto move = [&](int path, double bytes, double bytes_per_us) {
        ++flows;
        links.flows().start(now_us, path, bytes, bytes_per_us, step.owner);
    };
    if (kind_of(instruction.opcode) == OpcodeKind::connection) {
        if (step.out && step.out->costs.driven)
            move(step.out->costs.path, step.bytes, std::min(most, step.out->costs.most));
        else
            move(step.local_path, step.bytes, most);
        return flows;
    }
    // Reads and writes of other ranks' memory happen at the same time.
    if (!schedule.shared_ranks.empty()) most *= costs.gang;
    const unsigned theirs = Buffer::slot | Buffer::inputs | Buffer::either;
    if (instruction.opcode == Opcode::reduce && (instruction.source & theirs)) {
        const bool writes = instruction.targets & Buffer::outputs;
        const int others = int(schedule.shared_ranks.size()) - 1;
        for (const int32_t member : schedule.shared_ranks)
            if (member != schedule.rank) {
                move(links.reading_path(schedule.rank, member), step.bytes, most / others);
                if (writes) move(links.reading_path(member, schedule.rank), step.bytes, most / others);
            }
        if (others == 0) move(step.local_path, step.bytes, most);
    } else if (instruction.opcode == Opcode::reduce) {  // from cells of scratch: one of each rank
        move(step.local_path, step.bytes * std::max(1, step.ranks - 1), most);
    } else if (instruction.opcode == Opcode::copy && instruction.source == Buffer::slot &&
               instruction.rank.at(step.iteration) != schedule.rank) {
        move(links.reading_path(schedule.rank, instruction.rank.at(step.iteration)), step.bytes, most);
    } else {
        move(step.local_path, step.bytes, most);
    }
    return flows;
}

}  // namespace weft::internal
