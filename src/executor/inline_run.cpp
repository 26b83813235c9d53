#include "src/executor/inline_run.hpp"

#include <cstring>

#include "src/base/small_copy.hpp"

namespace weft::internal {

// Shorter than any message that is stored past the caches, and than most zero-copy messages.
constexpr size_t inline_step_bytes = 1 << 10;

static void copy_inline(void* destination, const void* source, size_t bytes) {
    if (bytes <= 64) return copy_small(destination, source, bytes);
    memmove(destination, source, bytes);
}

static bool suits(const Instruction& instruction, const ChunkSpan& span) {
    const Opcode opcode = instruction.opcode;
    const bool known = opcode == Opcode::send || opcode == Opcode::recv || opcode == Opcode::recv_copy_send ||
                       opcode == Opcode::recv_reduce_copy || opcode == Opcode::copy;
    return known && instruction.repeat == 1 && span.count <= 1 && span.bytes <= inline_step_bytes &&
           (!reads_source(opcode) || instruction.source == Buffer::input || instruction.source == Buffer::output) &&
           (!writes_targets(opcode) || instruction.targets == Buffer::output);
}

std::vector<InlineStep> InlineRun::steps_of(const Plan& plan) {
    const Schedule& schedule = *plan.schedule;
    if (plan.networked || plan.tiles != 1 || schedule.tiles != 1 || !schedule.shared_ranks.empty() ||
        plan.changes_input() || (!plan.zero_copy.stable_sends.empty() && plan.zero_copy.least <= inline_step_bytes))
        return {};
    std::vector<int32_t> first_of(schedule.blocks.size() + 1, 0);
    for (size_t block = 0; block < schedule.blocks.size(); ++block)
        first_of[block + 1] = first_of[block] + int32_t(schedule.blocks[block].instructions.size());
    const size_t length = plan.tile_length(0);  // there is a single tile
    std::vector<InlineStep> steps;
    for (size_t block = 0; block < schedule.blocks.size(); ++block) {
        const BlockEnds& ends = plan.ends[block];
        for (const Instruction& instruction : schedule.blocks[block].instructions) {
            const ChunkSpan span = chunk_span(instruction, 0, length, schedule.chunks, schedule.parts());
            if (!suits(instruction, span)) return {};
            InlineStep step{instruction.opcode, instruction.finish, instruction.left,
                            instruction.source == Buffer::input};
            step.block = int32_t(block);
            step.place = int32_t(steps.size()) - first_of[block];
            if (instruction.after.block >= 0 && instruction.after.ago == 0)
                step.after = first_of[size_t(instruction.after.block)] + instruction.after.step;
            step.source = ends.source;
            step.target = ends.target;
            step.bytes = span.bytes;
            if (span.bytes > 0) step.from = step.to = span.pieces[0].tile_offset;
            if (instruction.moves)
                step.to = chunk_range(length, schedule.chunks, instruction.into.at(0), 1, schedule.parts()).tile_offset;
            steps.push_back(step);
        }
    }
    return steps;
}

void InlineRun::start(const void* send, void* receive, const void* operand, uint64_t sequence) {
    begin(sequence);
    buffers_.bind(send, receive, operand);
    ++call_;
    first_ = 0;
}

Progress InlineRun::advance() try {
    report_.missing.clear();
    const auto ended = [this](size_t step) { return steps_[step].ended == call_; };
    bool moved = false;
    for (size_t index = first_; index < steps_.size(); ++index) {
        InlineStep& step = steps_[index];
        if (ended(index) || (step.place > 0 && !ended(index - 1)) || (step.after >= 0 && !ended(size_t(step.after))))
            continue;
        const Progress progress = step.bytes == 0 ? Progress::moved : take(step);
        if (progress == Progress::blocked) continue;
        if (progress != Progress::moved) return progress;
        step.ended = call_;
        moved = true;
    }
    while (first_ < steps_.size() && ended(first_)) ++first_;
    if (first_ == steps_.size()) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
} catch (const UserReductionFailed& failed) {
    return report_.fails(failed.status(plan_->schedule->rank, sequence_, plan_->operation));
}

// A blocked step has done nothing.
Progress InlineRun::take(const InlineStep& step) {
    const std::byte* const source = step.from_input ? buffers_.send() : buffers_.receive();
    const std::byte* from = source ? source + step.from : nullptr;
    // A rank that only sends may have no receive buffer.
    std::byte* const to = buffers_.receive() ? buffers_.receive() + step.to : nullptr;
    if (step.opcode == Opcode::copy) {
        copy_inline(to, from, step.bytes);
        return Progress::moved;
    }
    const Block& block = plan_->schedule->blocks[size_t(step.block)];
    const SlotInfo own{step.bytes, sequence_, plan_->operation_fingerprint};
    Slot incoming;
    bool zero_copy = false;
    if (receives(step.opcode)) {
        SlotInfo info;
        auto slot = step.source->receive(info);
        if (!slot) return report_.fails(slot.take_status());
        if (!*slot) return blocked_on(block.source);
        if (info.fingerprint != own.fingerprint || info.operation != own.operation || info.bytes != own.bytes)
            return report_.suspects(block.source, info.operation);
        incoming = *slot;
        zero_copy = info.address != 0;
        if (zero_copy) [[unlikely]]
            if (Status read = read_zero_copy(size_t(step.block), info, incoming); !read)
                return report_.fails(std::move(read));
        if (step.opcode == Opcode::recv_copy_send) from = incoming.data;
    }
    if (sends(step.opcode)) {
        auto sent = step.target->send(from, own);
        if (!sent) return report_.fails(sent.take_status());
        if (!*sent) return blocked_on(block.target);
        if (step.opcode == Opcode::send) return Progress::moved;
    }
    if (step.opcode == Opcode::recv_reduce_copy) {
        void* destination = to;
        const void* sources[2] = {incoming.data, from};
        if (step.left) std::swap(sources[0], sources[1]);
        buffers_.reduce(buffers_.reduction(&destination, 1, sources, 2, step.bytes, step.finish, 0));
    } else {
        copy_inline(to, incoming.data, step.bytes);
    }
    if (zero_copy && !plan_->zero_copy.cma->remote_memory_valid()) return report_.abandons();
    if (Status status = step.source->release(); !status) return report_.fails(std::move(status));
    return Progress::moved;
}

// The sender may have stable sends although this rank has none.
Status InlineRun::read_zero_copy(size_t block, const SlotInfo& info, Slot& incoming) {
    const BlockEnds& ends = plan_->ends[block];
    if (!plan_->zero_copy.cma->remote_memory_valid()) return abandoned_operation();
    const std::byte* mapped = mapped_bytes(info.address, ends.source_arena, ends.source_in_process);
    incoming.data = const_cast<std::byte*>(mapped);
    if (mapped) return ok();
    fetched_.resize(inline_step_bytes);
    incoming.data = fetched_.data();
    return plan_->zero_copy.cma->read(plan_->schedule->blocks[block].source, fetched_.data(), info.address, info.bytes);
}

}  // namespace weft::internal
