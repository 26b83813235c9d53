#include "src/executor/offered_receives.hpp"

namespace weft::internal {

// Between two looks at connections.
constexpr int steps_at_once = 64;

void OfferedReceives::begin() {
    const UserMemory* const memory = plan_->zero_copy.offers.memory;
    active_ = memory != nullptr && !memory->empty();
    if (!active_) return;
    in_place_ = operands_->buffers().send() == operands_->buffers().receive();
    for (Cursor& cursor : cursors_) cursor = {};
}

void OfferedReceives::withdraw() {
    for (const BlockEnds& ends : plan_->ends)
        if (ends.source_offers && ends.source) ends.source->withdraw();
}

Status OfferedReceives::offer_ahead(const StepAt& now) {
    const OfferPlan& offers = plan_->zero_copy.offers;
    Receiver& source = *plan_->ends[now.block].source;
    Cursor& cursor = cursors_[now.block];
    const uint64_t next = source.next();
    if (!cursor.begun || cursor.message < next) cursor = {.at = now, .message = next, .begun = true};
    for (int steps = 0; steps < steps_at_once && !cursor.ended && cursor.message < next + offers.depth; ++steps) {
        const StepAt& at = cursor.at;
        const ChunkSpan span = operands_->span_of(*at.instruction, at.iteration, at.tile);
        if (receives(at.instruction->opcode) && span.bytes > 0) {
            std::byte* const target = span.bytes >= PostPlan::least ? operands_->only_target(at, span) : nullptr;
            RegisteredMemory* const memory = target ? offers.memory->find(target, span.bytes) : nullptr;
            const bool is_now = at.tile == now.tile && at.step == now.step && at.iteration == now.iteration;
            if (memory && !is_now && !may_come_early(at)) return ok();
            if (memory) {
                // If it is declined, the message takes a slot.
                auto offered = source.offer(target, span.bytes, memory, cursor.message);
                if (!offered) return offered.take_status();
            }
            ++cursor.message;
        }
        advance(cursor);
    }
    return ok();
}

bool OfferedReceives::may_come_early(const StepAt& at) const {
    const EarlyReceives& early = *plan_->zero_copy.offers.early;
    if (early.empty()) return false;
    const Early when = early[at.block][size_t(at.step)];
    return when == Early::always || (when == Early::out_of_place && !in_place_);
}

// As StepMachine goes on.
void OfferedReceives::advance(Cursor& cursor) const {
    StepAt& at = cursor.at;
    if (++at.iteration < at.instruction->repeat) return;
    const std::vector<Instruction>& instructions = plan_->schedule->blocks[at.block].instructions;
    uint64_t tile = at.tile - uint64_t(at.instruction->tile);
    at.iteration = 0;
    if (size_t(++at.step) == instructions.size()) {
        at.step = 0;
        tile += uint64_t(plan_->schedule->tiles);
        cursor.ended = tile >= plan_->tiles;
    }
    at.instruction = &instructions[size_t(at.step)];
    at.tile = tile + uint64_t(at.instruction->tile);
}

}  // namespace weft::internal
