// run.cpp: the step machine: walks blocks of elementary instructions, tile after tile, as far as they go without
// waiting.
#include "src/executor/run.hpp"

#include <cassert>
#include <cstring>

#include "src/kernels/user_reduction.hpp"

namespace weft::internal {

Run::Run(const Plan& plan)
    : plan_(&plan),
      rank_(plan.schedule->rank),
      ranks_(plan.schedule->ranks),
      parts_(plan.schedule->parts()),
      tiling_{plan.bytes(), plan.tile_bytes},
      input_held_(input_of(plan.schedule->collective, rank_, plan.schedule->root)),
      output_held_(output_of(plan.schedule->collective, rank_, plan.schedule->root)),
      average_(plan.average()),
      changes_input_(plan.changes_input()),
      blocks_(plan.schedule->blocks.size()) {
    const Schedule& schedule = *plan.schedule;
    cell_bytes_ = cell_bytes(plan.tile_bytes, schedule.chunks / parts_);
    members_ = schedule.shared_ranks.data();
    if (!schedule.shared_ranks.empty()) place_ = place_of(rank_);
    fused_ = schedule.blocks.size() == 1 && !schedule.blocks[0].instructions.empty() &&
             kind_of(schedule.blocks[0].instructions[0].opcode) == OpcodeKind::fused;
    stages_whole_ = is_one_shot(schedule);
    fits_inline_ = shared_slot_bytes(schedule, plan.bytes()) <= inline_bytes;
    // An all-reduce's payloads say what is offered, and its fused form has a way of its own.
    inline_payload_ = fits_inline_ && schedule.collective != Collective::all_reduce;
    sources_.resize(size_t(std::max(ranks_, 2)));
    inputs_.resize(size_t(ranks_));
    outputs_.resize(size_t(ranks_));
    destinations_.resize(size_t(std::max(ranks_, 2)));
    staging_.resize(2);
    results_.resize(size_t(ranks_));
    if (plan.cma) {
        cma_inputs_.resize(size_t(ranks_));
        cma_outputs_.resize(size_t(ranks_));
        scratch_.resize(plan.cma_block_bytes() * size_t(ranks_ - 1));
    }
    const size_t tile_bytes = size_t(parts_) * std::min(plan.tile_bytes, plan.bytes());
    if (plan.scaled() && ranks_ > 1) scratch_.resize(tile_bytes + 64);
    inline_program_ = make_inline_program();
}

void Run::start(const void* send, void* receive, const void* operand, uint64_t sequence) {
    send_ = static_cast<const std::byte*>(send);
    receive_ = static_cast<std::byte*>(receive);
    if (input_held_ == Held::own) send_ -= first_held(Held::own, rank_, plan_->bytes());
    if (output_held_ == Held::own) receive_ -= first_held(Held::own, rank_, plan_->bytes());
    if (plan_->scratch) tile_scratch_ = plan_->scratch->data();
    operand_ = operand;
    sequence_ = sequence;
    if (inline_program_.empty())
        for (BlockState& state : blocks_) state = {};
    ++inline_call_;
    inline_first_ = 0;
    missing_ = &waiting_;
    suspect_ = -1;
    suspect_operation_ = 0;
    shares_buffers_ = zero_copy_sent_ = false;
    if (plan_->flag_block) base_tile_ = plan_->flag_block->tile;
}

Progress Run::advance() try { return advance_blocks(); } catch (const UserReductionFailed& failed) {
    // It left in the middle: what peers wait for was not posted, and will not be.
    failure_ = failed.status(rank_, sequence_, plan_->operation);
    return Progress::failed;
}

Progress Run::advance_blocks() {
    // The usual case on one host: a single block whose waiting set is the run's.
    if (fused_) return advance_block(0);
    if (!inline_program_.empty()) return advance_inline();
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
    if (plan_->networked) {
        auto flushed = flush();
        if (!flushed) return failure_ = flushed.take_status(), Progress::failed;
        // What peers wait for is on its way before the call returns: nobody pushes afterwards.
        if (all_ended && !*flushed) return moved ? Progress::moved : Progress::blocked;
    }
    if (all_ended && zero_copy_sent_ && !zero_copy_done()) return moved ? Progress::moved : Progress::blocked;
    if (all_ended) {
        const uint64_t run = uint64_t(plan_->schedule->tiles);
        if (plan_->flag_block) plan_->flag_block->tile = base_tile_ + uint32_t((plan_->tiles + run - 1) / run * run);
        return Progress::done;
    }
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
                return Progress::done;
            }
        }
        const Instruction& instruction = block.instructions[size_t(state.step)];
        if (instruction.after.block >= 0 && !reached(instruction.after, state.tile))
            return moved ? Progress::moved : Progress::blocked;
        const uint64_t tile = state.tile;
        const Stage stage = state.stage;
        state.wait = BlockState::Wait::none;
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
    return weft::internal::reached(dependency, plan_->schedule->tiles, tile,
                                   {other.tile, int32_t(other.step), other.ended});
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
        case Opcode::add:
        case Opcode::reduce: return move_local(instruction, state.iteration, tile);
        case Opcode::post:
            if (instruction.phase == 0) {
                if (!inline_payload_) memset(line(place_, tile).payload, 0, sizeof(BufferAddresses));
                post_arrival(tile);
            } else {
                post_departure(tile);
            }
            return Progress::moved;
        case Opcode::nop: return Progress::moved;
        case Opcode::wait: return await(instruction, state, tile);
        case Opcode::one_shot: return plan_->exports_buffers ? two_shot(state) : one_shot(state);
        case Opcode::two_shot: return two_shot(state);
    }
    assert(!"an opcode without a handler");
    return Progress::failed;
}

Progress Run::await(const Instruction& instruction, BlockState& state, uint64_t tile) {
    const std::vector<int32_t>& ranks = plan_->schedule->shared_ranks;
    RankSet& waiting = phase_waiting_[instruction.phase];
    if (state.stage == Stage::begin) {
        waiting.fill(int(ranks.size()), place_);
        state.stage = Stage::arrivals;
    }
    const Progress progress =
        poll(waiting, instruction.phase == 0 ? tile : no_tile, instruction.phase == 0 ? no_tile : tile);
    if (progress == Progress::moved) state.stage = Stage::begin;
    if (progress == Progress::blocked)
        waiting.for_each([&](int place) { connections_wait_.insert(ranks[size_t(place)]); });
    return progress;
}

int Run::place_of(int rank) const {
    const std::vector<int32_t>& ranks = plan_->schedule->shared_ranks;
    return int(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

Progress Run::move_local(const Instruction& instruction, int iteration, uint64_t tile) {
    if (instruction.moves)
        copy_chunk_into(instruction, iteration, tile);
    else
        each_piece(span_of(instruction, iteration, tile), tile,
                   [&](const Piece& piece) { move_piece(instruction, iteration, tile, piece); });
    return Progress::moved;
}

void Run::move_piece(const Instruction& instruction, int iteration, uint64_t tile, const Piece& piece) {
    void* destinations[targets_most];
    const int count = own_targets(instruction, tile, piece, destinations);
    if (instruction.opcode == Opcode::reduce) {
        const bool from_scratch = instruction.source == Buffer::scratch;
        const int members = from_scratch ? ranks_ : int(plan_->schedule->shared_ranks.size()),
                  own = from_scratch ? rank_ : place_;
        for (int place = 0; place < members; ++place)
            sources_[size_t(place)] = place == own   ? own_input(piece.offset, piece.bytes)
                                      : from_scratch ? scratch_at(place, piece)
                                                     : slot(place, tile) + piece.tile_offset;
        reduce(destinations, count, sources_.data(), members, piece.bytes, instruction.finish, 0, own);
        return;
    }
    if (instruction.opcode == Opcode::add) {
        const void* sources[2] = {destinations[0], own_source(instruction, tile, piece)};
        if (instruction.left) std::swap(sources[0], sources[1]);
        const int own = instruction.source != Buffer::input ? -1 : instruction.left ? 0 : 1;
        reduce(destinations, 1, sources, 2, piece.bytes, instruction.finish, 0, own);
        return;
    }
    copy_out(instruction, iteration, tile, piece, destinations, count);
}

// What is scaled is so once: in place its first destination can be where it comes from.
void Run::copy_out(const Instruction& instruction, int iteration, uint64_t tile, const Piece& from,
                   void* const* destinations, int count) {
    const bool own = instruction.source == Buffer::input;
    // The flag block's slot comes behind the output (own_targets()).
    const auto stores_of = [&](int i) {
        const bool is_slot =
            (instruction.targets & Buffer::slot) && i == ((instruction.targets & Buffer::output) ? 1 : 0);
        return is_slot ? &flag_block_stores() : nullptr;
    };
    if (own) copy_input(static_cast<std::byte*>(destinations[0]), from.offset, from.bytes, stores_of(0));
    const std::byte* source = own ? static_cast<const std::byte*>(destinations[0])
                              : instruction.source == Buffer::slot
                                  ? slot(place_of(instruction.rank.at(iteration)), tile) + from.tile_offset
                                  : own_source(instruction, tile, from);
    for (int i = own; i < count; ++i)
        if (destinations[i] != source) copy_to(destinations[i], source, from.bytes, stores_of(i));
}

// A copy to another chunk's place: one chunk lies in one part, so both are one piece.
void Run::copy_chunk_into(const Instruction& instruction, int iteration, uint64_t tile) {
    const size_t length = plan_->tile_length(tile);
    const auto piece_of = [&](int chunk) {
        const Range range = chunk_range(length, plan_->schedule->chunks, chunk, 1, parts_);
        return range.bytes == 0 ? Piece{} : tiling_.piece(tile, length, range.tile_offset, range.bytes);
    };
    const Piece from = piece_of(instruction.chunk.at(iteration)), to = piece_of(instruction.into.at(iteration));
    if (from.bytes == 0) return;
    void* destinations[targets_most];
    const int count = own_targets(instruction, tile, to, destinations);
    copy_out(instruction, iteration, tile, from, destinations, count);
}

const std::byte* Run::own_source(const Instruction& instruction, uint64_t tile, const Piece& piece) {
    if (instruction.source == Buffer::input) return own_input(piece.offset, piece.bytes);
    if (instruction.source == Buffer::slot) return slot(place_, tile) + piece.tile_offset;
    return instruction.source == Buffer::scratch ? scratch_at(instruction.source_cell, piece) : receive_ + piece.offset;
}

int Run::own_targets(const Instruction& instruction, uint64_t tile, const Piece& piece, void** destinations) {
    const unsigned targets = instruction.targets;
    int count = 0;
    if (targets & Buffer::output) destinations[count++] = receive_ + piece.offset;
    if (targets & Buffer::slot) destinations[count++] = slot(place_, tile) + piece.tile_offset;
    if (targets & Buffer::scratch) destinations[count++] = scratch_at(instruction.target_cell, piece);
    return count;
}

const std::byte* Run::own_input(size_t offset, size_t bytes) {
    if (!plan_->scaled()) return send_ + offset;
    plan_->cpu_kernels->scale[plan_->type()](scratch_.data(), send_ + offset, bytes / size_of(plan_->type()), operand_);
    return scratch_.data();
}

void Run::copy_to(void* destination, const void* source, size_t bytes, SlotStores* stores) const {
    if (stores)
        stores->copy(*plan_->cpu_kernels, destination, source, bytes);
    else
        plan_->cpu_kernels->copy({destination, source, bytes, Stores::ordinary});
}

void Run::copy_input(std::byte* destination, size_t offset, size_t bytes, SlotStores* stores) {
    if (plan_->scaled()) {
        plan_->cpu_kernels->scale[plan_->type()](destination, send_ + offset, bytes / size_of(plan_->type()), operand_);
    } else if (changes_input_) {
        void* to = destination;
        const void* from = send_ + offset;
        reduce(&to, 1, &from, 1, bytes, false, 0, 0);
    } else if (destination != send_ + offset) {
        copy_to(destination, send_ + offset, bytes, stores);
    }
}

ReduceJob Run::reduction(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                         size_t bytes, bool finish, int streamed, int own) const {
    const int contribution = !average_.rounds_shares ? ReduceJob::every_source : own < 0 ? ReduceJob::no_source : own;
    return {destinations,
            destination_count,
            sources,
            source_count,
            bytes / size_of(plan_->type()),
            finish ? average_.average_of : 0,
            plan_->stores,
            streamed,
            average_.share_of,
            contribution};
}

// The slot is the last of the destinations; what goes past the caches comes first in a job.
ReduceJob Run::reduction_with_slot(Stores of_slot, void** destinations, int count, const void* const* sources,
                                   int source_count, size_t bytes, bool finish, int streamed, int own) const {
    const bool past_caches = of_slot == Stores::streaming;
    if (past_caches) std::rotate(destinations, destinations + count - 1, destinations + count);
    ReduceJob job = reduction(destinations, count, sources, source_count, bytes, finish, streamed, own);
    if (past_caches) job.streamed = 1 + (job.stores == Stores::streaming ? streamed : 0);
    if (past_caches) job.stores = Stores::streaming;
    return job;
}

void Run::reduce(void* const* destinations, int destination_count, const void* const* sources, int source_count,
                 size_t bytes, bool finish, int streamed, int own) {
    reduce(reduction(destinations, destination_count, sources, source_count, bytes, finish, streamed, own));
}

void Run::reduce(const ReduceJob& job) {
    if (plan_->operation.calls_function()) [[unlikely]]
        return reduce_by(*static_cast<const UserReduction*>(operand_), job);
    plan_->cpu_kernels->reduce[plan_->type()][plan_->op()](job);
}

}  // namespace weft::internal
