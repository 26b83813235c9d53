// run.cpp: the step machine: walks blocks of elementary instructions, tile after tile, as far as they go without
// waiting.
#include "src/executor/run.hpp"

#include <cassert>
#include <cstring>

namespace weft {

Run::Run(const Plan& plan)
    : plan_(&plan), rank_(plan.schedule->rank), ranks_(plan.schedule->ranks), blocks_(plan.schedule->blocks.size()) {
    sources_.resize(size_t(std::max(ranks_, 2)));
    inputs_.resize(size_t(ranks_));
    outputs_.resize(size_t(ranks_));
    destinations_.resize(size_t(std::max(ranks_, 2)));
    staging_.resize(2);
    results_.resize(size_t(ranks_));
    if (plan.cross_memory) {
        cross_inputs_.resize(size_t(ranks_));
        cross_outputs_.resize(size_t(ranks_));
        scratch_.resize(plan.cross_block_bytes() * size_t(ranks_ - 1));
    }
    if (plan.scaled() && ranks_ > 1) scratch_.resize(std::min(plan.tile_bytes, plan.bytes()) + 64);
}

void Run::start(const void* send, void* receive, const void* scalar, uint64_t sequence) {
    send_ = static_cast<const std::byte*>(send);
    receive_ = static_cast<std::byte*>(receive);
    scalar_ = scalar;
    sequence_ = sequence;
    for (BlockState& state : blocks_) state = {};
    missing_ = &waiting_;
    suspect_ = -1;
    lends_ = false;
    if (plan_->board) base_tile_ = plan_->board->tile;
}

Progress Run::advance() {
    // The usual case on one host: a single block whose waiting set is the run's.
    if (blocks_.size() == 1 && !plan_->ends[0].source && !plan_->ends[0].target) return advance_block(0);
    connections_wait_.clear();
    missing_ = &connections_wait_;
    bool moved = false, all_ended = true;
    for (size_t index = 0; index < blocks_.size(); ++index) {
        if (blocks_[index].ended) continue;
        const Progress progress = advance_block(index);
        if (progress == Progress::mismatch || progress == Progress::failed) return progress;
        moved |= progress != Progress::blocked;
        all_ended &= progress == Progress::done;
    }
    if (all_ended) return Progress::done;
    return moved ? Progress::moved : Progress::blocked;
}

Progress Run::advance_block(size_t index) {
    BlockState& state = blocks_[index];
    const Block& block = plan_->schedule->blocks[index];
    bool moved = false;
    for (;;) {
        if (size_t(state.step) == block.instructions.size()) {
            state.step = 0;
            state.tile += uint64_t(plan_->schedule->tiles);
            if (block.instructions.empty() || state.tile >= plan_->tiles) {
                state.ended = true;
                if (plan_->board) plan_->board->tile = base_tile_ + uint32_t(state.tile);
                return Progress::done;
            }
        }
        const Instruction& instruction = block.instructions[size_t(state.step)];
        if (instruction.after.block >= 0 && !reached(instruction.after, state.tile))
            return moved ? Progress::moved : Progress::blocked;
        const uint64_t tile = state.tile;
        const Stage stage = state.stage;
        const Progress progress = execute(index, instruction);
        if (progress == Progress::done) {  // of a fused instruction, which walks the tiles itself
            state.ended = true;
            return Progress::done;
        }
        // A fused instruction may have gone through tiles before it blocked: that is no silence.
        if (progress == Progress::blocked)
            return moved || state.tile != tile || state.stage != stage ? Progress::moved : Progress::blocked;
        if (progress != Progress::moved) return progress;
        moved = true;
        if (++state.iteration >= instruction.repeat) {
            state.iteration = 0;
            ++state.step;
        }
    }
}

bool Run::reached(const Dependency& dependency, uint64_t tile) const {
    const BlockState& other = blocks_[size_t(dependency.block)];
    return other.ended || other.tile > tile || (other.tile == tile && other.step > dependency.step);
}

Progress Run::execute(size_t index, const Instruction& instruction) {
    BlockState& state = blocks_[index];
    const uint64_t tile = state.tile + uint64_t(instruction.tile);
    switch (instruction.opcode) {
        case Opcode::send:
        case Opcode::recv:
        case Opcode::recv_copy_send:
        case Opcode::recv_reduce_send:
        case Opcode::recv_reduce_copy:
        case Opcode::recv_reduce_copy_send: return move_connection(index, instruction, tile);
        case Opcode::copy:
        case Opcode::reduce: return move_local(instruction, state.iteration, tile);
        case Opcode::post:
            if (instruction.phase == 0) {
                memset(line(rank_, tile).payload, 0, sizeof(Offer));
                post_entry(tile);
            } else {
                post_done(tile);
            }
            return Progress::moved;
        case Opcode::wait: {
            if (state.stage == Stage::begin) {
                arm(instruction.phase == 0 ? tile : no_tile, instruction.phase == 0 ? no_tile : tile);
                state.stage = Stage::entries;
            }
            const Progress progress = poll();
            if (progress == Progress::moved) state.stage = Stage::begin;
            if (progress == Progress::blocked && missing_ != &waiting_) connections_wait_.insert(waiting_);
            return progress;
        }
        case Opcode::one_shot: return one_shot(state);
        case Opcode::two_shot: return two_shot(state);
    }
    assert(!"an opcode without a handler");
    return Progress::failed;
}

Run::Range Run::chunk_range(uint64_t tile, int chunk) const {
    const size_t length = plan_->tile_length(tile);
    const size_t first = chunk_bound(length, plan_->schedule->chunks, chunk),
                 last = chunk_bound(length, plan_->schedule->chunks, chunk + 1);
    return {first, last - first};
}

// An instruction's connections are looked at before anything moves, so a blocked one has done nothing.
Progress Run::move_connection(size_t index, const Instruction& instruction, uint64_t tile) {
    const BlockState& state = blocks_[index];
    const Block& block = plan_->schedule->blocks[index];
    const BlockEnds& ends = plan_->ends[index];
    const Range range = chunk_range(tile, instruction.chunk.at(state.iteration));
    if (range.bytes == 0) return Progress::moved;  // empty chunks are skipped on both ends
    const bool receives = instruction.opcode != Opcode::send;
    const bool sends = instruction.opcode != Opcode::recv && instruction.opcode != Opcode::recv_reduce_copy;
    const bool reduces = instruction.opcode == Opcode::recv_reduce_send ||
                         instruction.opcode == Opcode::recv_reduce_copy ||
                         instruction.opcode == Opcode::recv_reduce_copy_send;
    const bool stores = receives && instruction.opcode != Opcode::recv_reduce_send;
    const size_t user_offset = tile * plan_->tile_bytes + range.tile_offset;

    Slot incoming, outgoing;
    if (receives) {
        SlotInfo info;
        auto slot = ends.source->receive(info);
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return connections_wait_.insert(block.source), Progress::blocked;
        if (info.fingerprint != plan_->operation_fingerprint || info.operation != sequence_ ||
            info.bytes != range.bytes)
            return suspect_ = block.source, Progress::mismatch;
        incoming = *slot;
    }
    if (sends) {
        auto slot = ends.target->acquire();
        if (!slot) return failure_ = slot.take_status(), Progress::failed;
        if (!*slot) return connections_wait_.insert(block.target), Progress::blocked;
        if (slot->capacity < range.bytes)
            return failure_ = fail(weftInternalError, "a chunk of {} bytes does not fit a slot of {}", range.bytes,
                                   slot->capacity),
                   Progress::failed;
        outgoing = *slot;
    }
    if (reduces) {
        const void* sources[2] = {incoming.data, own_input(user_offset, range.bytes)};
        void* destinations[2];
        int count = 0;
        if (stores) destinations[count++] = receive_ + user_offset;
        if (sends) destinations[count++] = outgoing.data;
        reduce(destinations, count, sources, 2, range.bytes, instruction.finish, stores ? 1 : 0);
    } else if (receives) {
        if (sends) plan_->movers->copy({outgoing.data, incoming.data, range.bytes, Stores::ordinary});
        plan_->movers->copy({receive_ + user_offset, incoming.data, range.bytes, plan_->stores});
    } else if (instruction.source == Buffer::input) {
        copy_input(outgoing.data, user_offset, range.bytes);
    } else {
        plan_->movers->copy({outgoing.data, receive_ + user_offset, range.bytes, Stores::ordinary});
    }
    if (sends) {
        Status status = ends.target->publish({range.bytes, sequence_, plan_->operation_fingerprint});
        if (!status) return failure_ = std::move(status), Progress::failed;
    }
    if (receives) {
        Status status = ends.source->release();
        if (!status) return failure_ = std::move(status), Progress::failed;
    }
    return Progress::moved;
}

Progress Run::move_local(const Instruction& instruction, int iteration, uint64_t tile) {
    const int chunk = instruction.chunk.at(iteration);
    const Range range = chunk_range(tile, chunk);
    if (range.bytes == 0) return Progress::moved;
    const size_t user_offset = tile * plan_->tile_bytes + range.tile_offset;
    void* destinations[2];
    int count = 0;
    if (instruction.targets & Buffer::output) destinations[count++] = receive_ + user_offset;
    if (instruction.targets & Buffer::slot) destinations[count++] = slot(rank_, tile) + range.tile_offset;
    if (instruction.opcode == Opcode::reduce) {
        for (int rank = 0; rank < ranks_; ++rank)
            sources_[size_t(rank)] =
                rank == rank_ ? own_input(user_offset, range.bytes) : slot(rank, tile) + range.tile_offset;
        reduce(destinations, count, sources_.data(), ranks_, range.bytes, instruction.finish, 0);
        return Progress::moved;
    }
    for (int i = 0; i < count; ++i) {
        if (instruction.source == Buffer::input)
            copy_input(static_cast<std::byte*>(destinations[i]), user_offset, range.bytes);
        else if (instruction.source == Buffer::slot)
            plan_->movers->copy({destinations[i], slot(instruction.rank.at(iteration), tile) + range.tile_offset,
                                 range.bytes, Stores::ordinary});
        else
            plan_->movers->copy({destinations[i], receive_ + user_offset, range.bytes, Stores::ordinary});
    }
    return Progress::moved;
}

const std::byte* Run::own_input(size_t offset, size_t bytes) {
    if (!plan_->scaled()) return send_ + offset;
    plan_->movers->scale[plan_->type()](scratch_.data(), send_ + offset, bytes / size_of(plan_->type()), scalar_);
    return scratch_.data();
}

void Run::copy_input(std::byte* destination, size_t offset, size_t bytes) {
    if (plan_->scaled())
        plan_->movers->scale[plan_->type()](destination, send_ + offset, bytes / size_of(plan_->type()), scalar_);
    else if (destination != send_ + offset)
        plan_->movers->copy({destination, send_ + offset, bytes, Stores::ordinary});
}

ReduceJob Run::reduction(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                         size_t bytes, bool finish, int streamed) const {
    return {destinations,
            destination_count,
            sources,
            source_count,
            bytes / size_of(plan_->type()),
            finish && plan_->op() == weftAvg ? uint32_t(ranks_) : 0,
            plan_->stores,
            streamed};
}

void Run::reduce(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                 size_t bytes, bool finish, int streamed) {
    plan_->movers->reduce[plan_->type()][plan_->op()](
        reduction(destinations, destination_count, sources, source_count, bytes, finish, streamed));
}

}  // namespace weft
