#include "src/executor/message_steps.hpp"

namespace weft::internal {

Progress MessageSteps::blocked_on(const StepAt& at, Wait end) {
    const Block& block = plan_->schedule->blocks[at.block];
    report_->missing.insert(end == Wait::source ? block.source : block.target);
    waits_[at.block] = end;
    return Progress::blocked;
}

// Checks both connections before it moves anything.
Progress MessageSteps::execute(const StepAt& at) {
    const Opcode opcode = at.instruction->opcode;
    const BlockEnds& ends = plan_->ends[at.block];
    const ChunkSpan span = operands_->span_of(*at.instruction, at.iteration, at.tile);
    waits_[at.block] = Wait::none;
    if (ends.source_offers)
        if (Status offered = offers_.offer(at); !offered) return report_->fails(std::move(offered));
    if (span.bytes == 0) return Progress::moved;  // empty chunks are skipped on both ends
    if (ends.source_is_remote || ends.target_is_remote)
        if (const auto progress = move_past_slots(at, span)) return *progress;
    Slot incoming, outgoing;
    SlotInfo info;
    if (receives(opcode)) {
        auto slot = ends.source->receive(info);
        if (!slot) return report_->fails(slot.take_status());
        if (!*slot) return blocked_on(at, Wait::source);
        if (!of_this_call(info) || info.bytes != span.bytes)
            return report_->suspects(plan_->schedule->blocks[at.block].source, info.operation);
        incoming = *slot;
    }
    if (sends(opcode)) {
        auto slot = ends.target->acquire();
        if (!slot) return report_->fails(slot.take_status());
        if (!*slot) return blocked_on(at, Wait::target);
        if (slot->capacity < span.bytes)
            return report_->fails(fail(error::internal_state, "a message of {} bytes does not fit a slot of {} bytes",
                                       span.bytes, slot->capacity));
        outgoing = *slot;
    }
    return move(at, span, incoming, info, outgoing);
}

Progress MessageSteps::move(const StepAt& at, const ChunkSpan& span, const Slot& incoming, const SlotInfo& info,
                            const Slot& outgoing) {
    const Instruction& instruction = *at.instruction;
    const Block& block = plan_->schedule->blocks[at.block];
    const BlockEnds& ends = plan_->ends[at.block];
    const bool receives = weft::internal::receives(instruction.opcode),
               sends = weft::internal::sends(instruction.opcode), reduces = combines(instruction.opcode),
               stores = receives && writes_targets(instruction.opcode);
    const bool zero_copy = info.address != 0;
    const std::byte* received = incoming.data;
    bool at_once = false;  // CMA copies straight into the output, because the data is not reduced
    if (zero_copy) {
        if (!plan_->zero_copy.cma->remote_memory_valid()) return report_->abandons();
        received = mapped_bytes(info.address, ends.source_arena, ends.source_in_process);
        at_once = !received && !reduces && stores;
        if (!received && !at_once) {
            if (fetched_.size() < info.bytes) fetched_.resize(info.bytes);
            if (Status got = plan_->zero_copy.cma->read(block.source, fetched_.data(), info.address, info.bytes); !got)
                return report_->fails(std::move(got));
            received = fetched_.data();
        }
    }
    SlotStores* const slot_stores = sends && !ends.target_is_remote ? &plan_->slot_stores[block.target] : nullptr;
    const uint64_t address = sends ? zero_copy_address(at, span) : 0;
    CallBuffers& buffers = operands_->buffers();
    size_t done = 0;  // bytes of the message
    Status read;
    operands_->each_piece(span, at.tile, [&](const Piece& piece) {
        const std::byte* in = receives ? received + done : nullptr;
        std::byte* out = sends && !address ? outgoing.data + done : nullptr;
        void* destinations[Operands::targets_most + 1];
        int count = stores ? operands_->targets(instruction, at.tile, piece, destinations) : 0;
        const bool streamed = count > 0 && (instruction.targets & Buffer::output);
        if (at_once && read) {
            read = plan_->zero_copy.cma->read(block.source, destinations[0], info.address + done, piece.bytes);
            in = static_cast<const std::byte*>(destinations[0]);
        }
        done += piece.bytes;
        if (reduces) {
            const void* sources[2] = {in, operands_->source(instruction, at.tile, piece)};
            if (instruction.left) std::swap(sources[0], sources[1]);
            const int own = instruction.source != Buffer::input ? -1 : instruction.left ? 0 : 1;
            if (out) destinations[count++] = out;
            if (out && slot_stores)
                slot_stores->write(out, piece.bytes, SlotStores::Work::reduction, [&](Stores of_slot) {
                    buffers.reduce(buffers.reduction(destinations, count, sources, 2, piece.bytes, instruction.finish,
                                                     streamed, own, of_slot));
                });
            else
                buffers.reduce(
                    buffers.reduction(destinations, count, sources, 2, piece.bytes, instruction.finish, streamed, own));
        } else if (receives) {
            if (out) buffers.copy(out, in, piece.bytes, slot_stores);
            for (int i = at_once ? 1 : 0; i < count; ++i)
                plan_->cpu_kernels->copy(
                    {destinations[i], in, piece.bytes, i == 0 && streamed ? plan_->stores : Stores::ordinary});
        } else if (address) {
        } else if (instruction.source == Buffer::input) {
            buffers.copy_input(out, piece.offset, piece.bytes, slot_stores);
        } else {
            buffers.copy(out, operands_->source(instruction, at.tile, piece), piece.bytes, slot_stores);
        }
    });
    if (!read) return report_->fails(std::move(read));
    if (zero_copy && !plan_->zero_copy.cma->remote_memory_valid()) return report_->abandons();
    if (sends) {
        zero_copy_sent_ |= address != 0;
        Status status = ends.target->publish({span.bytes, sequence_, plan_->operation_fingerprint, address});
        if (!status) return report_->fails(std::move(status));
    }
    if (receives)
        if (Status status = ends.source->release(); !status) return report_->fails(std::move(status));
    return Progress::moved;
}

// Over a network, data that is only sent or only received moves between the user's buffer and the socket, past the slots.
// Empty: not possible for this instruction or this message.
std::optional<Progress> MessageSteps::move_past_slots(const StepAt& at, const ChunkSpan& span) {
    const Instruction& instruction = *at.instruction;
    const Block& block = plan_->schedule->blocks[at.block];
    const BlockEnds& ends = plan_->ends[at.block];
    const SlotInfo info = info_of(span.bytes);
    if (instruction.opcode == Opcode::send) {
        if (!ends.target_is_remote || span.count != 1) return {};
        const Piece piece = operands_->piece_at(at.tile, span.pieces[0]);
        if (piece.bytes != span.bytes) return {};
        if (instruction.source == Buffer::input && operands_->buffers().changes_input()) return {};
        auto sent = send_past_slots(at, operands_->source(instruction, at.tile, piece), info);
        if (!sent) return report_->fails(sent.take_status());
        return *sent ? Progress::moved : blocked_on(at, Wait::target);
    }
    std::byte* const target = ends.source_is_remote ? operands_->only_target(at, span) : nullptr;
    if (target == nullptr) return {};
    Slot outgoing;
    if (instruction.opcode == Opcode::recv_copy_send) {
        auto slot = ends.target->acquire();
        if (!slot) return report_->fails(slot.take_status());
        if (!*slot) return blocked_on(at, Wait::target);
        outgoing = *slot;
    }
    SlotInfo came;
    auto received = ends.source->receive_into(target, span.bytes, came);
    if (!received && came.operation != 0 && !of_this_call(came)) return report_->suspects(block.source, came.operation);
    if (!received) return report_->fails(received.take_status());
    if (!*received) return blocked_on(at, Wait::source);
    if (!of_this_call(came) || came.bytes != span.bytes) return report_->suspects(block.source, came.operation);
    if (instruction.opcode == Opcode::recv) return Progress::moved;
    if (ends.target_is_remote) {
        auto sent = send_past_slots(at, target, info);
        if (!sent) return report_->fails(sent.take_status());
        return Progress::moved;  // acquire() has returned a slot, so there was a credit
    }
    operands_->buffers().copy(outgoing.data, target, span.bytes, &plan_->slot_stores[block.target]);
    if (Status status = ends.target->publish(info); !status) return report_->fails(std::move(status));
    return Progress::moved;
}

// Registered memory that stays unchanged until the operation ends is sent without a copy.
Result<bool> MessageSteps::send_past_slots(const StepAt& at, const std::byte* data, const SlotInfo& info) {
    const PostPlan& posts = plan_->zero_copy.posts;
    Sender& target = *plan_->ends[at.block].target;
    if (info.bytes < PostPlan::least || !plan_->ends[at.block].target_posts || posts.stable_sends->empty() ||
        !(*posts.stable_sends)[at.block][size_t(at.step)])
        return target.send(data, info);
    if (!posted_from_ || !posted_from_->holds(data, info.bytes)) posted_from_ = posts.memory->find(data, info.bytes);
    return posted_from_ ? target.post(data, posted_from_, info) : target.send(data, info);
}

// The address of the instruction's data, if it stays valid until the operation ends and the receiver shall read it; else 0.
uint64_t MessageSteps::zero_copy_address(const StepAt& at, const ChunkSpan& span) const {
    const BlockEnds& ends = plan_->ends[at.block];
    if (plan_->zero_copy.stable_sends.empty() || !ends.target_reads.any() || span.count != 1 ||
        span.bytes < plan_->zero_copy.least || !plan_->zero_copy.stable_sends[at.block][size_t(at.step)])
        return 0;
    const CallBuffers& buffers = operands_->buffers();
    const bool from_input = at.instruction->opcode == Opcode::send && at.instruction->source == Buffer::input;
    if (from_input && buffers.changes_input()) return 0;
    const Piece piece = operands_->piece_at(at.tile, span.pieces[0]);
    if (piece.bytes != span.bytes) return 0;
    const std::byte* data = from_input ? buffers.send() : buffers.receive();
    return remote_address(data + piece.offset, piece.bytes, ends.target_reads, ends.target_in_process,
                          plan_->zero_copy.by_cma);
}

bool MessageSteps::zero_copy_done() {
    bool all = true;
    for (size_t index = 0; zero_copy_sent_ && index < plan_->ends.size(); ++index)
        if (plan_->ends[index].target_reads.any() && !plan_->ends[index].target->zero_copy_done()) {
            report_->missing.insert(plan_->schedule->blocks[index].target);
            all = false;
        }
    return all;
}

bool MessageSteps::may_be_reading(int peer) const {
    for (size_t index = 0; zero_copy_sent_ && index < plan_->ends.size(); ++index)
        if (plan_->schedule->blocks[index].target == peer && plan_->ends[index].target_reads.any() &&
            !plan_->ends[index].target->zero_copy_done())
            return true;
    return false;
}

Result<bool> MessageSteps::flush() {
    bool empty = true;
    for (size_t index = 0; index < plan_->ends.size(); ++index)
        if (plan_->ends[index].target_is_remote) {
            auto pushed = plan_->ends[index].target->progress();
            if (!pushed) return pushed;
            if (!*pushed) report_->missing.insert(plan_->schedule->blocks[index].target);
            empty &= *pushed;
        }
    return empty;
}

void MessageSteps::add_wakeups(Wakeups& wakeups) const {
    for (size_t index = 0; index < plan_->ends.size(); ++index) {
        const BlockEnds& ends = plan_->ends[index];
        if (ends.source_is_remote && waits_[index] == Wait::source) ends.source->add_wakeups(wakeups);
        // A sender may have unsent data although its block does not wait.
        if (ends.target_is_remote) ends.target->add_wakeups(wakeups);
    }
}

}  // namespace weft::internal
