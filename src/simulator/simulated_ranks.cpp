#include "src/simulator/simulated_ranks.hpp"

#include <algorithm>

#include "src/simulator/deadlock.hpp"
#include "src/simulator/step_flows.hpp"

namespace weft::internal {

SimulatedRanks::SimulatedRanks(const Fabric& fabric, const SimulatedCall& call, const SimulatedShape& shape)
    : fabric_(fabric),
      costs_(fabric.costs()),
      call_(call),
      shape_(shape),
      links_(fabric, shape.period, events_),
      connections_(fabric, shape.period, links_, events_, blocks_) {
    schedules_.reserve(size_t(shape.period));
    if (call.observe_load) links_.observe(call);
}

Status SimulatedRanks::connect_rank(int rank) {
    const Schedule& schedule = schedules_[size_t(rank)];
    SimulatedRank& state = ranks_[size_t(rank)];
    state.first_block = int32_t(blocks_.size());
    state.blocks = int32_t(schedule.blocks.size());
    state.local_path = links_.local_path(rank);
    if (links_.failed()) return links_.take_failure();
    state.slowness = fabric_.slowness(rank);
    for (const Block& block : schedule.blocks) {
        const int32_t index = int32_t(blocks_.size());
        SimulatedBlock& made = blocks_.emplace_back();
        made.block = &block;
        made.rank = rank;
        if (block.source >= 0) {
            auto in = connections_.add(block.channel, block.source, schedule.rank, schedule.fifo_depth);
            if (!in) return in.take_status();
            made.in = *in;
            connections_.set_receiver(*in, index);
        }
        if (block.target >= 0) {
            auto out = connections_.add(block.channel, schedule.rank, block.target, schedule.fifo_depth);
            if (!out) return out.take_status();
            made.out = *out;
            connections_.set_sender(*out, index);
        }
    }
    return ok();
}

Status SimulatedRanks::connect() {
    ranks_.resize(schedules_.size());
    size_t blocks = 0;
    for (const Schedule& schedule : schedules_) blocks += schedule.blocks.size();
    blocks_.reserve(blocks);
    connections_.reserve(blocks);
    pending_.dependents.resize(blocks);
    for (int rank = 0; rank < int(schedules_.size()); ++rank) WEFT_TRY(connect_rank(rank));
    WEFT_TRY(connections_.check_ends());
    flags_.load(schedules_, shape_.ranks);
    return ok();
}

Status SimulatedRanks::run() {
    for (int32_t index = 0; index < int32_t(blocks_.size()); ++index) queue(index);
    for (;;) {
        for (size_t next = 0; next < pending_.blocks.size(); ++next) {
            const int32_t index = pending_.blocks[next];
            blocks_[size_t(index)].queued = false;
            advance(index);
        }
        pending_.blocks.clear();
        if (links_.failed()) return links_.take_failure();
        if (!failure_) return std::move(failure_);
        give_threads();
        if (ended_ == int32_t(blocks_.size())) break;  // the rest are ends of flows that have become faster since
        links_.flows().settle(now_us_);
        if (events_.empty()) break;
        now_us_ = events_.next_us();
        while (!events_.empty() && events_.next_us() == now_us_) handle(events_.pop());
    }
    if (ended_ != int32_t(blocks_.size())) return deadlock_of(blocks_, schedules_);
    return ok();
}

void SimulatedRanks::handle(const SimulatedEvent& event) {
    switch (event.kind()) {
        case EventKind::wake: queue(event.subject); break;
        case EventKind::begin_moving: begin_moving(event.subject); break;
        case EventKind::carry: connections_.carry_event(event.subject, now_us_); break;
        case EventKind::arrive: connections_.come(event.subject, now_us_); break;
        case EventKind::flow_ends:
            if (links_.flows().ends(now_us_, event)) flow_ended(links_.flows().owner(event.subject));
            break;
    }
}

void SimulatedRanks::queue(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (state.queued || state.phase == BlockPhase::working || state.phase == BlockPhase::ended) return;
    state.queued = true;
    pending_.blocks.push_back(index);
}

void SimulatedRanks::wait(int32_t index, BlockPhase phase) {
    SimulatedBlock& state = blocks_[size_t(index)];
    state.phase = phase;
    if (phase != BlockPhase::thread) state.awaited = Awaited(phase);
    ranks_[size_t(state.rank)].thread_waiters += phase == BlockPhase::thread;
}

void SimulatedRanks::wait_until(int32_t index, BlockPhase phase, double at_us) {
    wait(index, phase);
    if (at_us < unlimited) events_.push(at_us, EventKind::wake, index);
}

void SimulatedRanks::advance(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Schedule& schedule = schedules_[size_t(state.rank)];
    if (state.phase == BlockPhase::working || state.phase == BlockPhase::ended) return;
    rank.thread_waiters -= state.phase == BlockPhase::thread;
    state.phase = BlockPhase::ready;
    const auto& instructions = state.block->instructions;
    for (;;) {
        if (size_t(state.at.step) == instructions.size()) {
            state.at.step = 0;
            state.at.tile += uint64_t(schedule.tiles);
            if (instructions.empty() || state.at.tile >= shape_.tiles) {
                state.phase = BlockPhase::ended;
                state.at.ended = true;
                state.end_us = now_us_;
                rank.end_us = std::max(rank.end_us, now_us_);
                ++ended_;
                return;
            }
        }
        const Instruction& instruction = instructions[size_t(state.at.step)];
        if (instruction.after.block >= 0 && state.iteration == 0 &&
            !reached(instruction.after, schedule.tiles, state.at.tile,
                     blocks_[size_t(rank.first_block + instruction.after.block)].at))
            return pending_.dependents.add(index, rank.first_block + instruction.after.block),
                   wait(index, BlockPhase::dependency);
        if (!advance_step(index, instruction)) return;
        complete_step(index);
    }
}

// True: the step is done. False: the block waits or works.
bool SimulatedRanks::advance_step(int32_t index, const Instruction& instruction) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (posts(instruction.opcode)) return post(index, instruction), true;
    if (waits(instruction.opcode)) return await(index, instruction);
    if (!moves(instruction.opcode)) return true;
    state.bytes = shape_.bytes_of(schedules_[size_t(state.rank)], instruction, state.iteration, state.at.tile);
    if (state.bytes == 0) return true;  // both ends skip empty chunks
    if (!can_begin(index, instruction)) return false;
    if (costs_.one_thread)
        want_thread(index);
    else
        begin(index);
    return false;
}

bool SimulatedRanks::can_begin(int32_t index, const Instruction& instruction) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (receives(instruction.opcode)) {
        const SimulatedConnection& in = connections_[state.in];
        if (in.released == in.filled) return wait(index, BlockPhase::message), false;
        const SlotTimes& full = connections_.slot(in, in.released);
        if (full.arrives_us > now_us_) return wait_until(index, BlockPhase::message, full.arrives_us), false;
        if (full.bytes != state.bytes && failure_) {
            failure_ = fail(error::schedule_set,
                            "rank {}, block {}, step {}: a message of {} bytes comes where {} are awaited", state.rank,
                            index - ranks_[size_t(state.rank)].first_block, state.at.step, full.bytes, state.bytes);
            return wait(index, BlockPhase::message), false;
        }
    }
    if (sends(instruction.opcode)) {
        const SimulatedConnection& out = connections_[state.out];
        if (out.filled - (out.costs.driven ? out.released : out.carried) >= uint64_t(out.depth))
            return wait(index, BlockPhase::credit), false;
        const double free_us = out.costs.driven ? connections_.slot(out, out.filled).free_us : now_us_;
        if (free_us > now_us_) return wait_until(index, BlockPhase::credit, free_us), false;
    }
    return true;
}

void SimulatedRanks::begin(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Opcode opcode = state.block->instructions[size_t(state.at.step)].opcode;
    double delay_us = costs_.step_us;
    if (receives(opcode)) delay_us += connections_[state.in].costs.overhead_us;
    if (sends(opcode)) delay_us += connections_[state.out].costs.overhead_us;
    state.phase = BlockPhase::working;
    if (costs_.one_thread && now_us_ > state.begin_us) state.awaited = Awaited::thread;
    state.begin_us = now_us_;
    rank.thread_busy = true;
    rank.last = index - rank.first_block;
    if (rank.working++ == 0) rank.since_us = now_us_;
    if (delay_us > 0)
        events_.push(now_us_ + delay_us * rank.slowness, EventKind::begin_moving, index);
    else
        begin_moving(index);
}

void SimulatedRanks::begin_moving(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    const SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Instruction& instruction = state.block->instructions[size_t(state.at.step)];
    const MovingStep step{.schedule = schedules_[size_t(state.rank)],
                          .instruction = instruction,
                          .iteration = state.iteration,
                          .bytes = state.bytes,
                          .out = sends(instruction.opcode) ? &connections_[state.out] : nullptr,
                          .ranks = shape_.ranks,
                          .local_path = rank.local_path,
                          .slowness = rank.slowness,
                          .owner = index};
    state.flows = start_flows(step, costs_, links_, now_us_);
}

void SimulatedRanks::flow_ended(int32_t owner) {
    if (owner >= 0) {
        if (--blocks_[size_t(owner)].flows == 0) finish_work(owner);
    } else if (const int32_t waiting = connections_.flow_ended(connection_of_owner(owner), now_us_); waiting >= 0) {
        queue(waiting);
    }
}

void SimulatedRanks::finish_work(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Instruction& instruction = state.block->instructions[size_t(state.at.step)];
    if (sends(instruction.opcode)) connections_.fill(state.out, state.bytes, now_us_);
    if (receives(instruction.opcode)) connections_.release(state.in, now_us_);
    state.busy_us += now_us_ - state.begin_us;
    rank.thread_busy = false;
    if (--rank.working == 0) rank.busy_us += now_us_ - rank.since_us;
    if (call_.observe)
        call_.observe({.rank = state.rank,
                       .block = index - rank.first_block,
                       .step = state.at.step,
                       .iteration = state.iteration,
                       .tile = state.at.tile,
                       .ready_us = state.ready_us,
                       .begin_us = state.begin_us,
                       .end_us = now_us_,
                       .awaited = state.begin_us > state.ready_us ? state.awaited : Awaited::nothing,
                       .bytes = state.bytes,
                       .of = state.block});
    state.ready_us = now_us_;
    state.awaited = Awaited::nothing;
    state.phase = BlockPhase::ready;
    complete_step(index);
    queue(index);
    if (rank.thread_waiters > 0) pending_.threads.push_back(state.rank);
}

void SimulatedRanks::want_thread(int32_t index) {
    wait(index, BlockPhase::thread);
    blocks_[size_t(index)].begin_us = now_us_;
    pending_.threads.push_back(blocks_[size_t(index)].rank);
}

// Called after all events of one time, so that the order of those events has no effect. A block runs until it waits.
// Then the next block gets the thread.
void SimulatedRanks::give_threads() {
    for (size_t i = 0; i < pending_.threads.size(); ++i) {
        SimulatedRank& rank = ranks_[size_t(pending_.threads[i])];
        for (int place = 0; place < rank.blocks && !rank.thread_busy && rank.thread_waiters > 0; ++place) {
            const int32_t index = rank.first_block + (rank.last + place) % rank.blocks;
            if (blocks_[size_t(index)].phase != BlockPhase::thread) continue;
            --rank.thread_waiters;
            begin(index);
        }
    }
    pending_.threads.clear();
}

void SimulatedRanks::complete_step(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (++state.iteration < state.block->instructions[size_t(state.at.step)].repeat) return;
    state.iteration = 0;
    ++state.at.step;
    for (const int32_t other : pending_.dependents.take(index))
        if (blocks_[size_t(other)].phase == BlockPhase::dependency) queue(other);
}

void SimulatedRanks::post(int32_t index, const Instruction& instruction) {
    const SimulatedBlock& state = blocks_[size_t(index)];
    const uint64_t tile = state.at.tile + uint64_t(instruction.tile);
    for (const int32_t waiter : flags_.post(state.rank, instruction.phase, tile, now_us_))
        events_.push(now_us_ + costs_.signal_us, EventKind::wake, waiter);
}

bool SimulatedRanks::await(int32_t index, const Instruction& instruction) {
    const SimulatedBlock& state = blocks_[size_t(index)];
    const uint64_t tile = state.at.tile + uint64_t(instruction.tile);
    const double seen_us = flags_.complete_us(state.rank, instruction.phase, tile, index) + costs_.signal_us;
    if (seen_us <= now_us_) return true;
    wait_until(index, BlockPhase::meeting, seen_us);
    return false;
}

RankUse SimulatedRanks::rank_use(int rank) const {
    const SimulatedRank& state = ranks_[size_t(rank)];
    return {state.end_us, now_us_ > 0 ? 1 - state.busy_us / now_us_ : 1};
}

std::vector<BlockUse> SimulatedRanks::block_uses() const {
    std::vector<BlockUse> uses;
    for (size_t index = 0; index < blocks_.size(); ++index) {
        const SimulatedBlock& state = blocks_[index];
        uses.push_back({state.rank, int(index) - ranks_[size_t(state.rank)].first_block, state.end_us,
                        now_us_ > 0 ? 1 - state.busy_us / now_us_ : 1});
    }
    return uses;
}

}  // namespace weft::internal
