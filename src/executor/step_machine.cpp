#include "src/executor/step_machine.hpp"

#include <cassert>
#include <cstring>

namespace weft::internal {

StepMachine::StepMachine(const Plan& plan)
    : Run(plan),
      buffers_(plan),
      flags_(plan),
      operands_(plan, buffers_, flags_),
      messages_(plan, operands_, report_),
      blocks_(plan.schedule->blocks.size()),
      sources_(size_t(std::max(plan.schedule->ranks, 2))) {}

void StepMachine::start(const void* send, void* receive, const void* operand, uint64_t sequence) {
    begin(sequence);
    buffers_.bind(send, receive, operand);
    flags_.begin();
    operands_.begin();
    messages_.begin(sequence);
    for (BlockState& state : blocks_) state = {};
}

Progress StepMachine::advance() try {
    report_.missing.clear();
    bool moved = false, all_ended = true;
    for (size_t index = 0; index < blocks_.size(); ++index) {
        if (blocks_[index].ended) continue;
        const Progress progress = advance_block(index);
        if (progress == Progress::mismatch || progress == Progress::failed) return progress;
        moved |= progress != Progress::blocked;
        all_ended &= progress == Progress::done;
    }
    const Progress so_far = moved ? Progress::moved : Progress::blocked;
    if (plan_->networked) {
        auto flushed = messages_.flush();
        if (!flushed) return report_.fails(flushed.take_status());
        // All data must be in the network before the call returns, because nothing pushes it afterwards.
        if (!*flushed) return so_far;
    }
    if (!all_ended || !messages_.zero_copy_done()) return so_far;
    const uint64_t run = uint64_t(plan_->schedule->tiles);
    if (plan_->flags.block) flags_.end((plan_->tiles + run - 1) / run * run);
    return Progress::done;
} catch (const UserReductionFailed& failed) {
    // The run ends in the middle: peers would wait for flags that are never posted.
    return report_.fails(failed.status(plan_->schedule->rank, sequence_, plan_->operation));
}

Progress StepMachine::advance_block(size_t index) {
    BlockState& state = blocks_[index];
    const Block& block = plan_->schedule->blocks[index];
    for (bool moved = false;; moved = true) {
        if (size_t(state.step) == block.instructions.size()) {
            state.step = 0;
            state.tile += uint64_t(plan_->schedule->tiles);
            if (block.instructions.empty() || state.tile >= plan_->tiles) {
                state.ended = true;
                return Progress::done;
            }
        }
        const Instruction& instruction = block.instructions[size_t(state.step)];
        const Progress progress = instruction.after.block >= 0 && !reached(instruction.after, state.tile)
                                      ? Progress::blocked
                                      : execute(index, instruction);
        if (progress == Progress::blocked) return moved ? Progress::moved : Progress::blocked;
        if (progress != Progress::moved) return progress;
        if (++state.iteration >= instruction.repeat) {
            state.iteration = 0;
            ++state.step;
        }
    }
}

bool StepMachine::reached(const Dependency& dependency, uint64_t tile) const {
    const BlockState& other = blocks_[size_t(dependency.block)];
    return weft::internal::reached(dependency, plan_->schedule->tiles, tile,
                                   {other.tile, int32_t(other.step), other.ended});
}

Progress StepMachine::execute(size_t index, const Instruction& instruction) {
    BlockState& state = blocks_[index];
    const uint64_t tile = state.tile + uint64_t(instruction.tile);
    switch (instruction.opcode) {
        case Opcode::send:
        case Opcode::recv:
        case Opcode::recv_copy_send:
        case Opcode::recv_reduce_send:
        case Opcode::recv_reduce_copy:
        case Opcode::recv_reduce_copy_send:
            return messages_.execute({index, state.step, state.iteration, tile, &instruction});
        case Opcode::copy:
        case Opcode::add:
        case Opcode::reduce:
            if (instruction.moves)
                copy_chunk_into(instruction, state.iteration, tile);
            else
                operands_.each_piece(
                    operands_.span_of(instruction, state.iteration, tile), tile,
                    [&](const Piece& piece) { move_piece(instruction, state.iteration, tile, piece); });
            return Progress::moved;
        case Opcode::post: return post(instruction, tile);
        case Opcode::nop: return Progress::moved;
        case Opcode::wait: return await(instruction, state, tile);
        case Opcode::one_shot:
        case Opcode::two_shot: break;  // see make_run()
    }
    assert(!"an opcode without a handler");
    return Progress::failed;
}

Progress StepMachine::post(const Instruction& instruction, uint64_t tile) {
    if (instruction.phase == 0) {
        if (!flags_.slots_in_payload()) memset(flags_.line(flags_.place(), tile).payload, 0, sizeof(BufferAddresses));
        flags_.post_arrival(tile);
    } else {
        flags_.post_departure(tile);
    }
    return Progress::moved;
}

Progress StepMachine::await(const Instruction& instruction, BlockState& state, uint64_t tile) {
    RankSet& waiting = phase_waiting_[instruction.phase];
    if (!state.awaits) waiting.fill(flags_.places(), flags_.place());
    constexpr uint64_t none = FlagSync::no_tile;
    const bool arrivals = instruction.phase == 0;
    const Progress progress = flags_.poll(waiting, arrivals ? tile : none, arrivals ? none : tile, report_);
    state.awaits = progress == Progress::blocked;
    if (progress == Progress::blocked)
        waiting.for_each([&](int place) { report_.missing.insert(flags_.rank_at(place)); });
    return progress;
}

void StepMachine::move_piece(const Instruction& instruction, int iteration, uint64_t tile, const Piece& piece) {
    void* destinations[Operands::targets_most];
    const int count = operands_.targets(instruction, tile, piece, destinations);
    if (instruction.opcode == Opcode::reduce) {
        const bool from_scratch = instruction.source == Buffer::scratch;
        const int members = from_scratch ? plan_->schedule->ranks : flags_.places(),
                  own = from_scratch ? plan_->schedule->rank : flags_.place();
        for (int place = 0; place < members; ++place)
            sources_[size_t(place)] = place == own   ? buffers_.own_input(piece.offset, piece.bytes)
                                      : from_scratch ? operands_.scratch_at(place, piece)
                                                     : operands_.slot_at(place, tile, piece);
        buffers_.reduce(
            buffers_.reduction(destinations, count, sources_.data(), members, piece.bytes, instruction.finish, 0, own));
    } else if (instruction.opcode == Opcode::add) {
        const void* sources[2] = {destinations[0], operands_.source(instruction, tile, piece)};
        if (instruction.left) std::swap(sources[0], sources[1]);
        const int own = instruction.source != Buffer::input ? -1 : instruction.left ? 0 : 1;
        buffers_.reduce(buffers_.reduction(destinations, 1, sources, 2, piece.bytes, instruction.finish, 0, own));
    } else {
        copy_out(instruction, iteration, tile, piece, destinations, count);
    }
}

// Scales the input once: in place, the first destination can be the source.
void StepMachine::copy_out(const Instruction& instruction, int iteration, uint64_t tile, const Piece& from,
                           void* const* destinations, int count) {
    const bool own = instruction.source == Buffer::input;
    // The flag block's slot comes after the output.
    const auto stores_of = [&](int i) {
        const bool is_slot =
            (instruction.targets & Buffer::slot) && i == ((instruction.targets & Buffer::output) ? 1 : 0);
        return is_slot ? &flags_.stores() : nullptr;
    };
    if (own) buffers_.copy_input(static_cast<std::byte*>(destinations[0]), from.offset, from.bytes, stores_of(0));
    const std::byte* source = own ? static_cast<const std::byte*>(destinations[0])
                              : instruction.source == Buffer::slot
                                  ? operands_.slot_at(flags_.place_of(instruction.rank.at(iteration)), tile, from)
                                  : operands_.source(instruction, tile, from);
    for (int i = own; i < count; ++i)
        if (destinations[i] != source) buffers_.copy(destinations[i], source, from.bytes, stores_of(i));
}

// Copies to another chunk. A chunk lies in one part, so source and destination are one piece each.
void StepMachine::copy_chunk_into(const Instruction& instruction, int iteration, uint64_t tile) {
    const Piece from = operands_.piece_of(tile, instruction.chunk.at(iteration)),
                to = operands_.piece_of(tile, instruction.into.at(iteration));
    if (from.bytes == 0) return;
    void* destinations[Operands::targets_most];
    const int count = operands_.targets(instruction, tile, to, destinations);
    copy_out(instruction, iteration, tile, from, destinations, count);
}

}  // namespace weft::internal
