// proof.cpp: set-up of a proof, and the order of its steps. proof_deadlock.cpp reports why no step can run.
#include "src/checker/proof.hpp"

#include "src/schedule/validate.hpp"

namespace weft::internal {

// Bounds of one proof: about 1 GiB, about a minute.
static constexpr uint64_t cells_most = uint64_t(1) << 24;
static constexpr uint64_t clock_words_most = uint64_t(1) << 28;
static constexpr uint64_t steps_total_most = uint64_t(1) << 28;
static constexpr uint64_t messages_most = uint64_t(1) << 24;

Proof::Proof(int ranks, std::span<const CheckedOperation> operations, const CheckOptions& options)
    : ranks_(ranks), options_(options), contributions_(ranks) {
    for (const CheckedOperation& call : operations) operations_.emplace_back().call = &call;
}

Status Proof::load() {
    if (ranks_ < 1 || ranks_ > ranks_most) return fail(error::schedule_limit, "{} ranks cannot be checked", ranks_);
    if (operations_.size() >= operations_most)
        return fail(error::schedule_limit, "at most {} operations can be checked at once", operations_most);
    if (options_.flag_slots < 1) return fail(error::schedule_limit, "a flag block has at least 1 slot");
    uint64_t steps = 0;
    uint32_t tiles = 0;
    flag_block_of_.assign(size_t(ranks_), -1);
    place_of_.assign(size_t(ranks_), 0);
    for (OperationState& operation : operations_) {
        WEFT_TRY(load_operation(operation));
        const Schedule& first = operation.schedules[0];
        if (operation.call->runs < 1 || int64_t(operation.call->runs) * first.tiles > tiles_most)
            return fail(error::schedule_limit, "an operation has 1..{} tiles", tiles_most);
        operation.tiles = operation.call->runs * first.tiles;
        operation.first_tile = tiles;
        tiles += operation.tiles;
        WEFT_TRY(load_flag_blocks(operation));
        uint64_t cells = uint64_t(ranks_) * first.chunks * operation.tiles;
        for (const Schedule& schedule : operation.schedules)
            cells += uint64_t(schedule.scratch) + uint64_t(schedule.wide - 1) * schedule.chunks;
        if (cells > cells_most)
            return fail(error::schedule_limit, "{} chunks on {} ranks in {} tiles are too much to check", first.chunks,
                        ranks_, operation.tiles);
        operation.results.assign(size_t(first.chunks) * operation.tiles, 0);
        for (const Schedule& schedule : operation.schedules)
            for (const Block& block : schedule.blocks)
                for (const Instruction& it : block.instructions)
                    steps += uint64_t(it.repeat) * it.count * operation.call->runs *
                             (it.opcode == Opcode::reduce ? schedule.shared_ranks.size() : 1);
        if (steps > steps_total_most) return fail(error::schedule_limit, "the schedules have too many steps to check");
    }
    size_t members = 1, meetings = 0;
    for (CheckedFlagBlock& flag_block : flag_blocks_) {
        members = std::max(members, flag_block.ranks.size());
        flag_block.first_phase = meetings;
        meetings += size_t(flag_block.tiles) * 2;
    }
    const uint64_t width = uint64_t(members) * blocks_;
    if (width * ranks_ * blocks_ > clock_words_most)
        return fail(error::schedule_limit, "{} ranks of {} blocks are too many to check", ranks_, blocks_);
    uint64_t releases = 0, deepest = options_.fifo_depth;
    for (const OperationState& operation : operations_) {
        deepest = std::max<uint64_t>(deepest, operation.schedules[0].fifo_depth);
        for (const auto& blocks : operation.depended)
            for (const auto& steps_of_block : blocks)
                releases +=
                    uint64_t(std::count(steps_of_block.begin(), steps_of_block.end(), true)) * operation.call->runs;
    }
    if (releases * width > clock_words_most)
        return fail(error::schedule_limit, "the schedules have too many dependencies to check");
    if (connections_.size() * deepest > messages_most)
        return fail(error::schedule_limit, "{} connections of {} slots are too many to check", connections_.size(),
                    deepest);
    clocks_ = std::make_unique<Clocks>(place_of_, int(members), blocks_);
    threads_.resize(size_t(ranks_) * blocks_);
    rank_states_.resize(ranks_);
    if (!flag_blocks_.empty()) slots_.resize(size_t(ranks_) * options_.flag_slots);
    for (const OperationState& operation : operations_)
        if (std::any_of(operation.schedules.begin(), operation.schedules.end(), has_scratch))
            scratches_.resize(size_t(ranks_));
    phase_states_.resize(meetings);
    return ok();
}

// Finds the ranks that share each flag block, and the flag block's tiles of the operation. A rank has one flag block
// for all operations, so slots and words continue from the operation before.
Status Proof::load_flag_blocks(OperationState& operation) {
    operation.first_flag_tile.assign(size_t(ranks_), 0);
    std::vector<bool> counted(flag_blocks_.size());
    for (int rank = 0; rank < ranks_; ++rank) {
        const std::vector<int32_t>& ranks = operation.schedules[rank].shared_ranks;
        if (ranks.empty()) continue;
        for (const int32_t other : ranks)
            if (operation.schedules[other].shared_ranks != ranks)
                return fail(error::schedule_set, "rank {} and rank {} disagree on the schedule's flag block",
                            std::min(rank, other), std::max(rank, other));
        if (flag_block_of_[rank] < 0) {
            for (size_t place = 0; place < ranks.size(); ++place) {
                if (flag_block_of_[ranks[place]] >= 0)
                    return fail(error::schedule_set, "rank {} had another flag block before", ranks[place]);
                flag_block_of_[ranks[place]] = int(flag_blocks_.size());
                place_of_[ranks[place]] = int(place);
            }
            flag_blocks_.push_back({ranks});
            counted.push_back(false);
        }
        CheckedFlagBlock& flag_block = flag_blocks_[flag_block_of_[rank]];
        if (flag_block.ranks != ranks) return fail(error::schedule_set, "rank {} had another flag block before", rank);
        if (!counted[flag_block_of_[rank]]) {
            for (const int32_t member : ranks) operation.first_flag_tile[member] = flag_block.tiles;
            flag_block.tiles += operation.tiles;
            counted[flag_block_of_[rank]] = true;
        }
    }
    return ok();
}

static Status differ(const Schedule& first, const Schedule& other) {
    const std::pair<const char*, bool> facts[] = {
        {"algorithm", first.algorithm == other.algorithm},
        {"collective", first.collective == other.collective},
        {"root", first.root == other.root},
        {"channels", first.channels == other.channels},
        {"chunks", first.chunks == other.chunks},
        {"tiles", first.tiles == other.tiles},
        {"largest span", first.span == other.span},
        {"width", first.wide == other.wide},
        {"FIFO depth", first.fifo_depth == other.fifo_depth},
        {"range of bytes", first.least_bytes == other.least_bytes && first.most_bytes == other.most_bytes}};
    for (auto [what, same] : facts)
        if (!same)
            return fail(error::schedule_set, "rank {} and rank {} disagree on the schedule's {}", first.rank,
                        other.rank, what);
    return ok();
}

Status Proof::load_operation(OperationState& operation) {
    const CheckedOperation& call = *operation.call;
    for (auto [what, size] :
         {std::pair{"readable", call.mode.readable.size()}, std::pair{"in place", call.in_place.size()}})
        if (size != 0 && size != size_t(ranks_))
            return fail(error::schedule_set, "{} values say whether ranks are {}, but there are {} ranks", size, what,
                        ranks_);
    operation.schedules.reserve(ranks_);
    for (int rank = 0; rank < ranks_; ++rank) {
        const Schedule& schedule = operation.schedules.emplace_back(call.schedule(rank));
        WEFT_TRY(validate(schedule));
        if (schedule.rank != rank || schedule.ranks != ranks_)
            return fail(error::schedule_set, "rank {} of {} has a schedule for rank {} of {}", rank, ranks_,
                        schedule.rank, schedule.ranks);
        WEFT_TRY(differ(operation.schedules[0], schedule));
        const int blocks = int(schedule.blocks.size());
        blocks_ = std::max(blocks_, blocks);
        for (const Block& block : schedule.blocks) {
            if (block.instructions.size() >= steps_most)
                return fail(error::schedule_limit, "rank {} has too many steps to check", rank);
            for (const Instruction& it : block.instructions)
                if (kind_of(it.opcode) == OpcodeKind::fused)
                    return fail(error::schedule_invalid, "rank {}: {} is fused; it is proved by its expansion", rank,
                                name_of(it.opcode));
        }
    }
    const int chunks = operation.schedules[0].chunks, parts = operation.schedules[0].parts();
    const size_t lengths[] = {call.tile_bytes, call.last_tile_bytes ? call.last_tile_bytes : call.tile_bytes};
    for (int last = 0; last < 2; ++last) {
        operation.empty_chunks[last].assign(chunks, false);
        for (int chunk = 0; lengths[last] && chunk < chunks; ++chunk)
            operation.empty_chunks[last][chunk] = chunk_range(lengths[last], chunks, chunk, 1, parts).bytes == 0;
    }
    return load_connections(operation);
}

// Both ends of each connection have a block for it. Connections stay from one operation to the next.
Status Proof::load_connections(OperationState& operation) {
    auto key = [&](int channel, int source, int target) {
        return (uint64_t(channel) * ranks_ + source) * ranks_ + target;
    };
    std::unordered_map<uint64_t, int> seen;  // bit 0: a block sends on it, bit 1: a block receives from it
    for (const Schedule& schedule : operation.schedules) {
        for (const Block& block : schedule.blocks) {
            if (block.target >= 0) seen[key(block.channel, schedule.rank, block.target)] |= 1;
            if (block.source >= 0) seen[key(block.channel, block.source, schedule.rank)] |= 2;
        }
    }
    for (const Schedule& schedule : operation.schedules) {
        for (const Block& block : schedule.blocks) {
            if (block.target >= 0 && seen[key(block.channel, schedule.rank, block.target)] == 1)
                return fail(error::schedule_set,
                            "rank {} sends to rank {} on channel {}, which has no block that receives it",
                            schedule.rank, block.target, block.channel);
            if (block.source < 0) continue;
            const uint64_t connection = key(block.channel, block.source, schedule.rank);
            if (seen[connection] == 2)
                return fail(error::schedule_set,
                            "rank {} receives from rank {} on channel {}, which has no block that sends it",
                            schedule.rank, block.source, block.channel);
            if (connection_of_.try_emplace(connection, int(connections_.size())).second)
                connections_.push_back({block.channel, block.source, schedule.rank, {}, -1, -1});
        }
    }
    for (const Schedule& schedule : operation.schedules) {
        auto& ends = operation.ends.emplace_back();
        auto& depended = operation.depended.emplace_back();
        for (const Block& block : schedule.blocks) {
            ends.emplace_back(block.source < 0 ? -1 : connection_of_[key(block.channel, block.source, schedule.rank)],
                              block.target < 0 ? -1 : connection_of_[key(block.channel, schedule.rank, block.target)]);
            depended.emplace_back(block.instructions.size());
        }
        for (const Block& block : schedule.blocks)
            for (const Instruction& it : block.instructions)
                if (it.after != Dependency()) depended[it.after.block][it.after.step] = true;
    }
    return ok();
}

Status Proof::run() {
    // The lowest rank leaves the queue first, so that messages name low ranks.
    for (int rank = ranks_ - 1; rank >= 0; --rank)
        if (!begin_operation(rank)) return std::move(failure_);
    while (!queue_.empty()) {
        const int thread = queue_.back();
        queue_.pop_back();
        threads_[thread].queued = false;
        if (!run_thread(thread)) return std::move(failure_);
    }
    for (const RankProgress& rank : rank_states_)
        if (rank.operation < int(operations_.size())) return deadlock();
    return leftovers();
}

void Proof::queue(int thread) {
    if (thread < 0 || threads_[thread].queued || threads_[thread].ended) return;
    threads_[thread].queued = true;
    queue_.push_back(thread);
}

// The user has written the input and may have used the output before the call. Operations without instructions end at
// once.
bool Proof::begin_operation(int rank) {
    RankProgress& state = rank_states_[rank];
    const int first_thread = rank * blocks_;
    for (; state.operation < int(operations_.size()); ++state.operation) {
        const OperationState& operation = operations_[state.operation];
        const Schedule& schedule = operation.schedules[rank];
        const auto& in_place = operation.call->in_place;
        state.in_place = !in_place.empty() && in_place[rank];
        state.start = {first_thread, clocks_->now(first_thread), state.operation, -1};
        // The call releases all blocks; the first steps of all blocks come after it.
        for (int b = 1; b < blocks_; ++b) clocks_->merge(clocks_->row(first_thread + b), clocks_->row(first_thread));
        clocks_->tick(first_thread);
        state.output.assign(operation.tiles, {});
        state.input_readers.clear();
        state.blocks_left = 0;
        for (int b = 0; b < blocks_; ++b) {
            ThreadState& thread = threads_[first_thread + b];
            const bool works = b < int(schedule.blocks.size()) && !schedule.blocks[b].instructions.empty();
            thread.run = thread.step = thread.iteration = 0;
            thread.ended = !works;
            thread.releases.assign(works ? schedule.blocks[b].instructions.size() : 0, {});
            state.blocks_left += works;
            queue(first_thread + b);
        }
        if (state.blocks_left > 0) return true;
        if (!check_result(rank)) return false;
    }
    return true;
}

// All blocks have ended; then the user writes both buffers.
bool Proof::end_operation(int rank) {
    const int first_thread = rank * blocks_;
    for (int b = 1; b < blocks_; ++b) clocks_->merge(clocks_->row(first_thread), clocks_->row(first_thread + b));
    if (!check_result(rank)) return false;
    for (int b = 1; b < blocks_; ++b) clocks_->tick(first_thread + b);
    ++rank_states_[rank].operation;
    return begin_operation(rank);
}

Proof::StepContext Proof::here(int thread) const {
    const ThreadState& state = threads_[thread];
    const int rank = thread / blocks_, block = thread % blocks_;
    const OperationState& operation = operations_[rank_states_[rank].operation];
    const Schedule& schedule = operation.schedules[rank];
    const Instruction& it = schedule.blocks[block].instructions[state.step];
    return {thread,
            rank,
            block,
            state.step,
            state.iteration,
            &operation,
            &schedule,
            &it,
            state.run * schedule.tiles + it.tile,
            it.chunk.at(state.iteration)};
}

bool Proof::run_thread(int thread) {
    ThreadState& state = threads_[thread];
    while (!state.ended) {
        const StepContext now = here(thread);
        if (!ready(now)) return true;
        ++steps_;
        if (state.iteration == 0 && now.it->after != Dependency()) {
            const ThreadState& other = threads_[now.rank * blocks_ + now.it->after.block];
            const int run = state.run - now.it->after.ago;
            if (run >= 0) clocks_->merge(clocks_->row(thread), other.releases[now.it->after.step][run].data());
        }
        if (!execute(now)) return false;
        if (++state.iteration < now.it->repeat) continue;
        state.iteration = 0;
        complete_step(now);
        if (++state.step < int(now.schedule->blocks[now.block].instructions.size())) continue;
        state.step = 0;
        state.ended = ++state.run == now.operation->call->runs;
    }
    const int rank = thread / blocks_;
    return --rank_states_[rank].blocks_left > 0 || end_operation(rank);
}

// Releases everything before this step to the steps that run after it.
void Proof::complete_step(const StepContext& here) {
    if (!here.operation->depended[here.rank][here.block][here.step]) return;
    const uint32_t* row = clocks_->row(here.thread);
    threads_[here.thread].releases[here.step].emplace_back(row, row + clocks_->width());
    clocks_->tick(here.thread);
    for (int b = 0; b < blocks_; ++b)
        if (b != here.block) queue(here.rank * blocks_ + b);
}

// Both ends skip empty chunks, and messages that have only those.
bool Proof::skipped(const StepContext& here) const {
    if (!moves(here.it->opcode)) return false;
    for (int offset = 0; offset < here.it->count; ++offset)
        if (!empty(here.at(offset))) return false;
    return true;
}

bool Proof::ready(const StepContext& here) {
    const Dependency& after = here.it->after;
    if (after != Dependency()) {
        const ThreadState& other = threads_[here.rank * blocks_ + after.block];
        if (int(other.releases[after.step].size()) <= threads_[here.thread].run - after.ago) return false;
    }
    if (waits(here.it->opcode)) {
        PhaseState& met = phase_state(here.rank, flag_tile(here), here.it->phase);
        if (met.posted == int(members(here).size())) return true;
        met.waiting.push_back(here.thread);
        return false;
    }
    if (kind_of(here.it->opcode) != OpcodeKind::connection || skipped(here)) return true;
    const auto [source, target] = here.operation->ends[here.rank][here.block];
    if (receives(here.it->opcode) && connections_[source].slots.empty()) {
        connections_[source].blocked_receiver = here.thread;
        return false;
    }
    if (sends(here.it->opcode) && connections_[target].slots.size() >= fifo_depth(here)) {
        connections_[target].blocked_sender = here.thread;
        return false;
    }
    return true;
}

bool Proof::execute(const StepContext& here) {
    if (skipped(here)) return true;
    switch (here.it->opcode) {
        case Opcode::copy:
        case Opcode::add:
        case Opcode::reduce:
            for (int offset = 0; offset < here.it->count; ++offset) {
                const StepContext there = here.at(offset);
                if (empty(there)) continue;
                if (!(here.it->opcode == Opcode::copy  ? execute_copy(there)
                      : here.it->opcode == Opcode::add ? execute_add(there)
                                                       : execute_reduce(there)))
                    return false;
            }
            return true;
        case Opcode::nop: return true;
        case Opcode::post: return execute_post(here);
        case Opcode::wait: return execute_wait(here);
        case Opcode::one_shot:
        case Opcode::two_shot: return object(here, "it is fused");
        default: return execute_connection(here);
    }
}

}  // namespace weft::internal
