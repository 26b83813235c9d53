// connected.cpp: what instructions move over connections: from slots and into them, and over a network past them.
#include "src/executor/run.hpp"

namespace weft::internal {

// An instruction's connections are looked at before anything moves, so a blocked one has done nothing.
Progress Run::move_connection(size_t index, const Instruction& instruction, uint64_t tile) {
    const BlockState& state = blocks_[index];
    const Block& block = plan_->schedule->blocks[index];
    const BlockEnds& ends = plan_->ends[index];
    const Span span = span_of(instruction, state.iteration, tile);
    if (span.bytes == 0) return Progress::moved;  // empty chunks are skipped on both ends
    const bool receives = weft::internal::receives(instruction.opcode),
               sends = weft::internal::sends(instruction.opcode), reduces = combines(instruction.opcode),
               stores = receives && writes_targets(instruction.opcode);

    if (ends.source_is_remote || ends.target_is_remote)
        if (const auto progress = move_past_slots(index, instruction, tile, span)) return *progress;
    Slot incoming, outgoing;
    SlotInfo info;
    if (receives) {
        auto slot = ends.source->receive(info);
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return blocked_on(index, true);
        if (info.fingerprint != plan_->operation_fingerprint || info.operation != sequence_ || info.bytes != span.bytes)
            return suspects(block.source, info);
        incoming = *slot;
    }
    if (sends) {
        auto slot = ends.target->acquire();
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return blocked_on(index, false);
        if (slot->capacity < span.bytes)
            return failure_ = fail(weftInternalError, "a message of {} bytes does not fit a slot of {}", span.bytes,
                                   slot->capacity),
                   Progress::failed;
        outgoing = *slot;
    }
    const bool fetched = info.address != 0;
    // Straight into place, if it is copied.
    const std::byte* mapped_here =
        fetched ? mapped_bytes(info.address, ends.source_arena, ends.source_in_process) : nullptr;
    const bool by_kernel = fetched && !mapped_here, at_once = by_kernel && !reduces && stores;
    if (fetched) {
        if (!plan_->zero_copy_cma->remote_memory_valid()) return abandon();
        if (by_kernel && !at_once) {
            if (Status got = fetch(block.source, info); !got) return failure_ = std::move(got), Progress::failed;
            incoming.data = fetched_.data();
        } else if (mapped_here) {
            incoming.data = const_cast<std::byte*>(mapped_here);
        }
    }
    SlotStores* const slot_stores = sends && !ends.target_is_remote ? &plan_->slot_stores[block.target] : nullptr;
    const uint64_t address = sends ? zero_copy_address(index, instruction, tile, span) : 0;
    size_t done = 0;  // bytes of the message
    Status read;
    each_piece(span, tile, [&](const Piece& piece) {
        const std::byte* in = receives ? incoming.data + done : nullptr;
        std::byte* out = sends && !address ? outgoing.data + done : nullptr;
        void* destinations[targets_most + 1];
        int count = stores ? own_targets(instruction, tile, piece, destinations) : 0;
        const bool streamed = count > 0 && (instruction.targets & Buffer::output);
        if (at_once && read) {
            read = plan_->zero_copy_cma->read(block.source, destinations[0], info.address + done, piece.bytes);
            in = static_cast<const std::byte*>(destinations[0]);
        }
        done += piece.bytes;
        if (reduces) {
            const void* sources[2] = {in, own_source(instruction, tile, piece)};
            if (instruction.left) std::swap(sources[0], sources[1]);
            const int own = instruction.source != Buffer::input ? -1 : instruction.left ? 0 : 1;
            if (out && slot_stores) {
                destinations[count++] = out;
                slot_stores->write(out, piece.bytes, SlotStores::Work::reduction, [&](Stores of_slot) {
                    reduce(reduction_with_slot(of_slot, destinations, count, sources, 2, piece.bytes,
                                               instruction.finish, streamed, own));
                });
            } else {
                if (out) destinations[count++] = out;
                reduce(destinations, count, sources, 2, piece.bytes, instruction.finish, streamed, own);
            }
        } else if (receives) {
            if (out) copy_to(out, in, piece.bytes, slot_stores);
            for (int i = at_once ? 1 : 0; i < count; ++i)
                plan_->cpu_kernels->copy(
                    {destinations[i], in, piece.bytes, i == 0 && streamed ? plan_->stores : Stores::ordinary});
        } else if (address) {
        } else if (instruction.source == Buffer::input) {
            copy_input(out, piece.offset, piece.bytes, slot_stores);
        } else {
            copy_to(out, own_source(instruction, tile, piece), piece.bytes, slot_stores);
        }
    });
    if (!read) return failure_ = std::move(read), Progress::failed;
    if (fetched && !plan_->zero_copy_cma->remote_memory_valid()) return abandon();
    if (sends) {
        zero_copy_sent_ |= address != 0;
        Status status = ends.target->publish({span.bytes, sequence_, plan_->operation_fingerprint, address});
        if (!status) return failure_ = std::move(status), Progress::failed;
    }
    if (receives) {
        Status status = ends.source->release();
        if (!status) return failure_ = std::move(status), Progress::failed;
    }
    return Progress::moved;
}

// Over a network what is only sent or only received goes between the user's buffer and the socket, past the slots.
// Nothing: this instruction does not, or not with this message.
std::optional<Progress> Run::move_past_slots(size_t index, const Instruction& instruction, uint64_t tile,
                                             const Span& span) {
    const Block& block = plan_->schedule->blocks[index];
    const BlockEnds& ends = plan_->ends[index];
    if (span.count != 1) return {};
    const Piece piece = tiling_.piece(tile, plan_->tile_length(tile), span.pieces[0].tile_offset, span.bytes);
    if (piece.bytes != span.bytes) return {};
    const SlotInfo info{span.bytes, sequence_, plan_->operation_fingerprint};
    if (instruction.opcode == Opcode::send) {
        if (!ends.target_is_remote) return {};
        if (instruction.source == Buffer::input && changes_input_) return {};
        auto sent = ends.target->send(own_source(instruction, tile, piece), info);
        if (!sent) return failure_ = sent.take_status(), Progress::failed;
        return *sent ? Progress::moved : blocked_on(index, false);
    }
    if (!ends.source_is_remote || (instruction.opcode != Opcode::recv && instruction.opcode != Opcode::recv_copy_send))
        return {};
    void* destinations[targets_most];
    if (own_targets(instruction, tile, piece, destinations) != 1) return {};
    auto* const target = static_cast<std::byte*>(destinations[0]);
    Slot outgoing;
    if (instruction.opcode == Opcode::recv_copy_send) {
        auto slot = ends.target->acquire();
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return blocked_on(index, false);
        outgoing = *slot;
    }
    SlotInfo came;
    auto received = ends.source->receive_into(target, span.bytes, came);
    const bool known = came.fingerprint == info.fingerprint && came.operation == info.operation;
    if (!received && came.operation != 0 && !known) return suspects(block.source, came);
    if (!received) return failure_ = received.take_status(), Progress::failed;
    if (!*received) return blocked_on(index, true);
    if (!known || came.bytes != span.bytes) return suspects(block.source, came);
    if (instruction.opcode == Opcode::recv) return Progress::moved;
    if (ends.target_is_remote) {
        auto sent = ends.target->send(target, info);
        if (!sent) return failure_ = sent.take_status(), Progress::failed;
        return Progress::moved;  // there was a credit
    }
    copy_to(outgoing.data, target, span.bytes, &plan_->slot_stores[block.target]);
    if (Status status = ends.target->publish(info); !status) return failure_ = std::move(status), Progress::failed;
    return Progress::moved;
}

Progress Run::suspects(int rank, const SlotInfo& message) {
    suspect_ = rank;
    suspect_operation_ = message.operation;
    return Progress::mismatch;
}

Progress Run::blocked_on(size_t index, bool source) {
    const Block& block = plan_->schedule->blocks[index];
    connections_wait_.insert(source ? block.source : block.target);
    blocks_[index].wait = source ? BlockState::Wait::source : BlockState::Wait::target;
    return Progress::blocked;
}

// True: no sender has anything left to push.
Result<bool> Run::flush() {
    bool empty = true;
    for (size_t index = 0; index < blocks_.size(); ++index)
        if (plan_->ends[index].target_is_remote) {
            auto pushed = plan_->ends[index].target->progress();
            if (!pushed) return pushed;
            if (!*pushed) connections_wait_.insert(plan_->schedule->blocks[index].target);
            empty &= *pushed;
        }
    return empty;
}

void Run::add_descriptors(std::vector<pollfd>& list) const {
    for (size_t index = 0; index < blocks_.size(); ++index) {
        const BlockEnds& ends = plan_->ends[index];
        const auto wait = blocks_[index].ended ? BlockState::Wait::none : blocks_[index].wait;
        if (ends.source_is_remote && wait == BlockState::Wait::source) ends.source->add_descriptors(list);
        // Of a sender also what it still has to push.
        if (ends.target_is_remote) ends.target->add_descriptors(list);
    }
}

}  // namespace weft::internal
