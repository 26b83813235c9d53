// inline_program.cpp: a call whose every message and copy is a few bytes, among ranks of one host: its blocks as one list of steps
// with their places found beforehand, for there what an instruction needs to be understood takes longer than its bytes
// take to go between a buffer and a slot.
#include <cstring>

#include "src/base/small_copy.hpp"
#include "src/executor/run.hpp"

namespace weft::internal {

// Below what slots are ever stored to past the caches, or lent.
constexpr size_t inline_step_bytes = 1 << 10;

static void copy_inline(void* destination, const void* source, size_t bytes) {
    if (bytes <= 64) return copy_small(destination, source, bytes);
    memmove(destination, source, bytes);
}

// Empty: some instruction is another kind, or moves more.
std::vector<Run::InlineStep> Run::make_inline_program() const {
    const Schedule& schedule = *plan_->schedule;
    if (plan_->networked || plan_->tiles != 1 || schedule.tiles != 1 || !schedule.shared_ranks.empty() ||
        changes_input_ || (!plan_->stable_sends.empty() && plan_->zero_copy_least <= inline_step_bytes))
        return {};
    std::vector<int32_t> first_of(schedule.blocks.size() + 1, 0);
    for (size_t block = 0; block < schedule.blocks.size(); ++block)
        first_of[block + 1] = first_of[block] + int32_t(schedule.blocks[block].instructions.size());
    std::vector<InlineStep> steps;
    for (size_t block = 0; block < schedule.blocks.size(); ++block) {
        const BlockEnds& ends = plan_->ends[block];
        for (const Instruction& instruction : schedule.blocks[block].instructions) {
            const Opcode opcode = instruction.opcode;
            const bool known = opcode == Opcode::send || opcode == Opcode::recv || opcode == Opcode::recv_copy_send ||
                               opcode == Opcode::recv_reduce_copy || opcode == Opcode::copy;
            const Span span = span_of(instruction, 0, 0);
            if (!known || instruction.repeat != 1 || span.count > 1 || span.bytes > inline_step_bytes ||
                (reads_source(opcode) && instruction.source != Buffer::input && instruction.source != Buffer::output) ||
                (writes_targets(opcode) && instruction.targets != Buffer::output))
                return {};
            InlineStep step{opcode, instruction.finish, instruction.left, instruction.source == Buffer::input};
            step.block = int32_t(block);
            step.place = int32_t(steps.size()) - first_of[block];
            if (instruction.after.block >= 0 && instruction.after.ago == 0)
                step.after = first_of[size_t(instruction.after.block)] + instruction.after.step;
            step.source = ends.source;
            step.target = ends.target;
            step.bytes = span.bytes;
            // A tile is the whole here.
            if (span.bytes > 0) step.from = step.to = span.pieces[0].tile_offset;
            if (instruction.moves)
                step.to =
                    chunk_range(plan_->tile_length(0), schedule.chunks, instruction.into.at(0), 1, parts_).tile_offset;
            steps.push_back(step);
        }
    }
    return steps;
}

Progress Run::advance_inline() {
    connections_wait_.clear();
    missing_ = &connections_wait_;
    const auto ended = [this](size_t step) { return inline_program_[step].ended == inline_call_; };
    bool moved = false;
    for (size_t index = inline_first_; index < inline_program_.size(); ++index) {
        InlineStep& step = inline_program_[index];
        if (ended(index) || (step.place > 0 && !ended(index - 1)) || (step.after >= 0 && !ended(size_t(step.after))))
            continue;
        const Progress progress = step.bytes == 0 ? Progress::moved : take_inline_step(step);
        if (progress == Progress::blocked) continue;
        if (progress != Progress::moved) return progress;
        step.ended = inline_call_;
        moved = true;
    }
    while (inline_first_ < inline_program_.size() && ended(inline_first_)) ++inline_first_;
    if (inline_first_ == inline_program_.size()) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
}

// Blocked, it has done nothing.
Progress Run::take_inline_step(const InlineStep& step) {
    const std::byte* from = (step.from_input ? send_ : receive_) + step.from;
    const SlotInfo told{step.bytes, sequence_, plan_->operation_fingerprint};
    if (step.opcode == Opcode::copy) {
        copy_inline(receive_ + step.to, from, step.bytes);
        return Progress::moved;
    }
    Slot incoming;
    if (receives(step.opcode)) {
        SlotInfo info;
        auto slot = step.source->receive(info);
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return blocked_on(size_t(step.block), true);
        const Block& block = plan_->schedule->blocks[size_t(step.block)];
        if (info.fingerprint != told.fingerprint || info.operation != told.operation || info.bytes != told.bytes)
            return suspects(block.source, info);
        if (info.address != 0) [[unlikely]] {  // this rank lends nothing so short; the other one does
            blocks_[size_t(step.block)].step = step.place;
            return move_connection(size_t(step.block), block.instructions[size_t(step.place)], 0);
        }
        incoming = *slot;
        if (step.opcode == Opcode::recv_copy_send) from = incoming.data;
    }
    if (sends(step.opcode)) {
        auto sent = step.target->send(from, told);
        if (!sent) return failure_ = sent.take_status(), Progress::failed;
        if (!*sent) return blocked_on(size_t(step.block), false);
        if (step.opcode == Opcode::send) return Progress::moved;
    }
    std::byte* const to = receive_ + step.to;
    if (step.opcode == Opcode::recv_reduce_copy) {
        void* destination = to;
        const void* sources[2] = {incoming.data, from};
        if (step.left) std::swap(sources[0], sources[1]);
        reduce(&destination, 1, sources, 2, step.bytes, step.finish, 0);
    } else {
        copy_inline(to, incoming.data, step.bytes);
    }
    if (Status status = step.source->release(); !status) return failure_ = std::move(status), Progress::failed;
    return Progress::moved;
}

}  // namespace weft::internal
