#include "tests/schedule/mutation.hpp"

#include <fmt/core.h>

#include <optional>

#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"

namespace weft::internal::test {

const char* name_of(Fault fault) {
    switch (fault) {
        case Fault::dropped_dependency: return "dropped dependency";
        case Fault::shifted_chunk: return "shifted chunk";
        case Fault::shifted_peer: return "shifted peer";
        case Fault::missing_wait: return "missing wait";
        case Fault::missing_post: return "missing post";
        case Fault::dropped_instruction: return "dropped instruction";
        case Fault::shortened_loop: return "shortened loop";
        case Fault::shortened_span: return "shortened span";
        case Fault::exchanged_operands: return "exchanged operands";
        case Fault::lagging_dependency: return "lagging dependency";
        case Fault::flipped_finish: return "flipped finish";
        case Fault::exchanged_neighbours: return "exchanged neighbours";
        case Fault::depth_one_less: return "depth one less";
        case Fault::slot_reused_early: return "slot reused too early";
    }
    return "unknown fault";
}

// The next place, within what the index may reach.
static std::optional<Index> shifted(Index index, int end) {
    if (end < 2) return {};
    if (index.modulus > 1) return Index{index.base, index.start + 1, index.modulus, index.step};
    return Index{(index.base + 1) % end, index.start, 1, index.step};
}

// Dependencies on steps of `block` move to the new steps: `place(step)`, or none if that is -1.
template <class StepMapping>
static void move_dependencies(Schedule& schedule, int block, StepMapping place) {
    for (Block& each : schedule.blocks) {
        for (Instruction& it : each.instructions) {
            if (it.after.block != block) continue;
            it.after.step = place(it.after.step);
            if (it.after.step < 0) it.after = {};
        }
    }
}

// Applies the fault at the step; false if the step cannot have it.
static bool apply(Fault fault, Schedule& schedule, int block, int step) {
    Block& in = schedule.blocks[block];
    Instruction& it = in.instructions[step];
    const bool is_flag = kind_of(it.opcode) == OpcodeKind::flag;
    auto drop = [&] {
        move_dependencies(schedule, block, [&](int old) { return old < step ? old : old - 1; });
        in.instructions.erase(in.instructions.begin() + step);
        return true;
    };
    switch (fault) {
        case Fault::dropped_dependency:
            if (it.after == Dependency()) return false;
            it.after = {};
            return true;
        case Fault::shifted_chunk: {
            const auto next = shifted(it.chunk, schedule.chunks);
            if (is_flag || !next) return false;
            it.chunk = *next;
            return true;
        }
        case Fault::shifted_peer: {
            if (it.opcode == Opcode::copy && it.source == Buffer::slot) {
                it.rank = *shifted(it.rank, schedule.ranks);
                return true;
            }
            // A block's peers are shifted once, at its first step: to the next other rank.
            if (step != 0 || schedule.ranks < 3 || (in.source < 0 && in.target < 0)) return false;
            for (int* end : {&in.source, &in.target}) {
                if (*end < 0) continue;
                *end = (*end + 1) % schedule.ranks;
                if (*end == schedule.rank) *end = (*end + 1) % schedule.ranks;
            }
            return true;
        }
        case Fault::missing_wait: return it.opcode == Opcode::wait && drop();
        case Fault::missing_post: return it.opcode == Opcode::post && drop();
        case Fault::dropped_instruction: return !is_flag && drop();
        case Fault::shortened_loop: return it.repeat-- > 1;
        case Fault::shortened_span: return it.count-- > 1;
        case Fault::exchanged_operands: it.left = !it.left; return validate(schedule).ok();
        case Fault::lagging_dependency:
            if (it.after == Dependency()) return false;
            ++it.after.ago;
            return true;
        case Fault::flipped_finish:
            if (is_flag || it.targets == 0 || it.opcode == Opcode::recv || it.opcode == Opcode::recv_copy_send)
                return false;
            it.finish = !it.finish;
            return true;
        case Fault::exchanged_neighbours:
            if (step + 1 == int(in.instructions.size())) return false;
            move_dependencies(schedule, block, [&](int old) {
                return old == step ? step + 1 : old == step + 1 ? step : old;
            });
            std::swap(it, in.instructions[step + 1]);
            return true;
        case Fault::depth_one_less:
        case Fault::slot_reused_early: return false;
    }
    return false;
}

void each_mutant(const std::vector<Schedule>& original, int slots_needed,
                 const std::function<void(const Mutant&)>& visit) {
    const int ranks = int(original.size());
    if (original[0].fifo_depth > 1)
        visit({Fault::depth_one_less,
               original,
               {.flag_slots = slots_needed, .fifo_depth = original[0].fifo_depth - 1},
               -1,
               -1,
               -1,
               "FIFO depth"});
    if (!original[0].shared_ranks.empty() && slots_needed > 1)
        visit({Fault::slot_reused_early, original, {.flag_slots = slots_needed - 1}, -1, -1, -1, "slots of the board"});
    for (int kind = 0; kind < fault_kinds; ++kind) {
        for (int rank = -1; rank < ranks; ++rank) {
            const Schedule& model = original[std::max(rank, 0)];
            for (int block = 0; block < int(model.blocks.size()); ++block) {
                for (int step = 0; step < int(model.blocks[block].instructions.size()); ++step) {
                    Mutant mutant{Fault(kind), original, {.flag_slots = slots_needed}, rank, block, step, {}};
                    bool applied = true;
                    for (int each = 0; each < ranks && applied; ++each) {
                        if (rank >= 0 && each != rank) continue;
                        Schedule& schedule = mutant.schedules[each];
                        applied = block < int(schedule.blocks.size()) &&
                                  step < int(schedule.blocks[block].instructions.size()) &&
                                  apply(Fault(kind), schedule, block, step);
                    }
                    if (!applied) continue;
                    mutant.text = fmt::format("{} at {}, block {}, step {} ({})", name_of(mutant.fault),
                                              rank < 0 ? "all ranks" : fmt::format("rank {}", rank), block, step,
                                              text_of(model.blocks[block].instructions[step]));
                    visit(mutant);
                }
            }
        }
    }
}

}  // namespace weft::internal::test
