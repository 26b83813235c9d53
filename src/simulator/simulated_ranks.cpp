// simulated_ranks.cpp: the run of a simulation: each block runs until it waits, then the time moves to the next event.
#include "src/simulator/simulated_ranks.hpp"

namespace weft::internal {

namespace {

// The owner of a flow: a block that drives it, or a connection whose slots a NIC or the kernel carries.
constexpr int32_t owner_of_connection(int32_t connection) { return -1 - connection; }

}  // namespace

Status SimulatedRanks::run() {
    for (int32_t index = 0; index < int32_t(blocks_.size()); ++index) queue(index);
    for (;;) {
        for (; queue_at_ < queue_.size(); ++queue_at_) {
            const int32_t index = queue_[queue_at_];
            blocks_[size_t(index)].queued = false;
            advance(index);
        }
        queue_.clear();
        queue_at_ = 0;
        if (!failure_) return std::move(failure_);
        give_threads();
        if (ended_ == int32_t(blocks_.size())) break;  // the rest are ends of flows that have become faster since
        flows_.settle(now_us_);
        if (events_.empty()) break;
        now_us_ = events_.next_us();
        while (!events_.empty() && events_.next_us() == now_us_) {
            const SimulatedEvent event = events_.pop();
            switch (event.kind()) {
                case EventKind::wake: queue(event.subject); break;
                case EventKind::begin_moving: begin_moving(event.subject); break;
                case EventKind::carry:
                    if (connections_[size_t(event.subject)].begins_us <= now_us_)
                        begin_carrying(event.subject);
                    else
                        carry(event.subject);
                    break;
                case EventKind::arrive: come(event.subject); break;
                case EventKind::flow_ends:
                    if (flows_.ends(now_us_, event)) flow_ended(flows_.owner(event.subject));
                    break;
            }
        }
    }
    if (ended_ != int32_t(blocks_.size())) return deadlock();
    return ok();
}

void SimulatedRanks::queue(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (state.queued || state.phase == Phase::working || state.phase == Phase::ended) return;
    state.queued = true;
    queue_.push_back(index);
}

void SimulatedRanks::wait(int32_t index, Phase phase) {
    SimulatedBlock& state = blocks_[size_t(index)];
    state.phase = phase;
    if (phase != Phase::thread) state.awaited = Awaited(phase);
    ranks_[size_t(state.rank)].dependents += phase == Phase::dependency;
    ranks_[size_t(state.rank)].thread_waiters += phase == Phase::thread;
}

void SimulatedRanks::wait_until(int32_t index, Phase phase, double at_us) {
    wait(index, phase);
    if (at_us < unlimited) events_.push(at_us, EventKind::wake, index);
}

void SimulatedRanks::advance(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Schedule& schedule = schedules_[size_t(state.rank)];
    if (state.phase == Phase::working || state.phase == Phase::ended) return;
    rank.dependents -= state.phase == Phase::dependency;
    rank.thread_waiters -= state.phase == Phase::thread;
    state.phase = Phase::ready;
    const auto& instructions = state.block->instructions;
    for (;;) {
        if (size_t(state.step) == instructions.size()) {
            state.step = 0;
            state.tile += uint64_t(schedule.tiles);
            if (instructions.empty() || state.tile >= tiles_) {
                state.phase = Phase::ended;
                state.end_us = now_us_;
                rank.end_us = std::max(rank.end_us, now_us_);
                ++ended_;
                return;
            }
        }
        const Instruction& instruction = instructions[size_t(state.step)];
        if (instruction.after.block >= 0 && state.iteration == 0 && !reached(state, instruction.after))
            return wait(index, Phase::dependency);
        if (!advance_step(index, instruction)) return;
        complete_step(index);
    }
}

// True: the step is done. False: the block waits or works.
bool SimulatedRanks::advance_step(int32_t index, const Instruction& instruction) {
    SimulatedBlock& state = blocks_[size_t(index)];
    if (posts(instruction.opcode)) return post(index, instruction);
    if (waits(instruction.opcode)) return await(index, instruction);
    if (!moves(instruction.opcode)) return true;
    state.bytes = bytes_of(state, instruction);
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
        const SimulatedConnection& in = connections_[size_t(state.in)];
        if (in.released == in.filled) return wait(index, Phase::message), false;
        const SlotTimes& full = slot(in, in.released);
        if (full.arrives_us > now_us_) return wait_until(index, Phase::message, full.arrives_us), false;
        if (full.bytes != state.bytes && failure_) {
            failure_ = fail(error::schedule_set,
                            "rank {}, block {}, step {}: a message of {} bytes comes where {} are awaited", state.rank,
                            index - ranks_[size_t(state.rank)].first_block, state.step, full.bytes, state.bytes);
            return wait(index, Phase::message), false;
        }
    }
    if (sends(instruction.opcode)) {
        const SimulatedConnection& out = connections_[size_t(state.out)];
        if (out.filled - (out.driven ? out.released : out.carried) >= uint64_t(out.depth))
            return wait(index, Phase::credit), false;
        const double free_us = out.driven ? slot(out, out.filled).free_us : now_us_;
        if (free_us > now_us_) return wait_until(index, Phase::credit, free_us), false;
    }
    return true;
}

void SimulatedRanks::begin(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Opcode opcode = state.block->instructions[size_t(state.step)].opcode;
    double delay_us = costs_.step_us;
    if (receives(opcode)) delay_us += connections_[size_t(state.in)].overhead_us;
    if (sends(opcode)) delay_us += connections_[size_t(state.out)].overhead_us;
    state.phase = Phase::working;
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
    const Schedule& schedule = schedules_[size_t(state.rank)];
    const Instruction& instruction = state.block->instructions[size_t(state.step)];
    double most = combines(instruction.opcode) ? costs_.reduce_bytes_per_us : costs_.copy_bytes_per_us;
    most /= rank.slowness;
    state.flows = 0;
    if (kind_of(instruction.opcode) == OpcodeKind::connection) {
        const SimulatedConnection* out = sends(instruction.opcode) ? &connections_[size_t(state.out)] : nullptr;
        if (out && out->driven)
            move(index, out->path, state.bytes, std::min(most, out->most));
        else
            move(index, rank.local_path, state.bytes, most);
        return;
    }
    // Reads and writes of other ranks' memory happen at the same time.
    if (!schedule.shared_ranks.empty()) most *= costs_.gang;
    const unsigned theirs = Buffer::slot | Buffer::inputs | Buffer::either;
    if (instruction.opcode == Opcode::reduce && (instruction.source & theirs)) {
        const bool writes = instruction.targets & Buffer::outputs;
        const int others = int(schedule.shared_ranks.size()) - 1;
        for (const int32_t member : schedule.shared_ranks)
            if (member != schedule.rank) {
                move(index, reading_path(schedule.rank, member), state.bytes, most / others);
                if (writes) move(index, reading_path(member, schedule.rank), state.bytes, most / others);
            }
        if (others == 0) move(index, rank.local_path, state.bytes, most);
    } else if (instruction.opcode == Opcode::reduce) {  // from cells of scratch: one of each rank
        move(index, rank.local_path, state.bytes * std::max(1, shape_.ranks - 1), most);
    } else if (instruction.opcode == Opcode::copy && instruction.source == Buffer::slot &&
               instruction.rank.at(state.iteration) != schedule.rank) {
        move(index, reading_path(schedule.rank, instruction.rank.at(state.iteration)), state.bytes, most);
    } else {
        move(index, rank.local_path, state.bytes, most);
    }
}

void SimulatedRanks::move(int32_t index, int path, double bytes, double most) {
    ++blocks_[size_t(index)].flows;
    flows_.start(now_us_, path, bytes, most, index);
}

void SimulatedRanks::flow_ended(int32_t owner) {
    if (owner >= 0) {
        if (--blocks_[size_t(owner)].flows == 0) finish_work(owner);
        return;
    }
    SimulatedConnection& connection = connections_[size_t(-1 - owner)];
    connection.carrying = false;
    if (connection.carrier_us > 0) {
        ++connection.carried;
        events_.push(now_us_ + connection.latency_us - connection.carrier_us, EventKind::arrive, -1 - owner);
    } else {
        arrived(slot(connection, connection.carried++), connection, now_us_ + connection.latency_us);
    }
    if (blocks_[size_t(connection.sender)].phase == Phase::credit) queue(connection.sender);
    carry(-1 - owner);
}

void SimulatedRanks::arrived(SlotTimes& full, const SimulatedConnection& connection, double at_us) {
    full.arrives_us = at_us;
    if (blocks_[size_t(connection.receiver)].phase == Phase::message)
        events_.push(full.arrives_us, EventKind::wake, connection.receiver);
}

// When the carrier thread of the rank begins this work, which takes `takes_us`.
double SimulatedRanks::carrier_begins(int32_t index, double takes_us) {
    SimulatedRank& rank = ranks_[size_t(index)];
    const double begins_us = std::max(now_us_, rank.carries_until_us);
    rank.carries_until_us = begins_us + takes_us * rank.slowness;
    return begins_us;
}

// A slot arrives with its last byte, at the carrier thread.
void SimulatedRanks::come(int32_t number) {
    SimulatedConnection& connection = connections_[size_t(number)];
    const int32_t rank = blocks_[size_t(connection.receiver)].rank;
    carrier_begins(rank, connection.carrier_us);
    arrived(slot(connection, connection.come++), connection, ranks_[size_t(rank)].carries_until_us);
}

// Slots are carried in order, one at a time while the window is open, as through a socket or the queue of a NIC.
void SimulatedRanks::carry(int32_t number) {
    SimulatedConnection& connection = connections_[size_t(number)];
    if (connection.carrying || connection.carried == connection.filled) return;
    if (connection.carried >= uint64_t(Route::window)) {
        const uint64_t before = connection.carried - uint64_t(Route::window);
        if (before >= connection.released) return;
        if (const double opens_us = slot(connection, before).free_us; opens_us > now_us_)
            return events_.push(opens_us, EventKind::carry, number);
    }
    connection.carrying = true;
    if (connection.carrier_us > 0) {
        connection.begins_us = carrier_begins(blocks_[size_t(connection.sender)].rank, connection.carrier_us);
        if (connection.begins_us > now_us_) return events_.push(connection.begins_us, EventKind::carry, number);
    }
    begin_carrying(number);
}

void SimulatedRanks::begin_carrying(int32_t number) {
    SimulatedConnection& connection = connections_[size_t(number)];
    connection.begins_us = unlimited;
    flows_.start(now_us_, connection.path, slot(connection, connection.carried).bytes, connection.most,
                 owner_of_connection(number));
}

void SimulatedRanks::finish_work(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedRank& rank = ranks_[size_t(state.rank)];
    const Instruction& instruction = state.block->instructions[size_t(state.step)];
    if (sends(instruction.opcode)) {
        SimulatedConnection& out = connections_[size_t(state.out)];
        SlotTimes& filled = slot(out, out.filled++);
        filled.bytes = state.bytes;
        filled.arrives_us = unlimited;
        ++messages_;
        message_bytes_ += state.bytes;
        if (out.driven) {
            ++out.carried;
            arrived(filled, out, now_us_ + out.latency_us);
        } else {
            carry(state.out);
        }
    }
    if (receives(instruction.opcode)) {
        SimulatedConnection& in = connections_[size_t(state.in)];
        slot(in, in.released++).free_us = now_us_ + in.credit_us;
        if (!in.driven)
            carry(state.in);
        else if (blocks_[size_t(in.sender)].phase == Phase::credit)
            events_.push(now_us_ + in.credit_us, EventKind::wake, in.sender);
    }
    state.busy_us += now_us_ - state.begin_us;
    rank.thread_busy = false;
    if (--rank.working == 0) rank.busy_us += now_us_ - rank.since_us;
    if (call_.observe)
        call_.observe({.rank = state.rank,
                       .block = index - rank.first_block,
                       .step = state.step,
                       .iteration = state.iteration,
                       .tile = state.tile,
                       .ready_us = state.ready_us,
                       .begin_us = state.begin_us,
                       .end_us = now_us_,
                       .awaited = state.begin_us > state.ready_us ? state.awaited : Awaited::nothing,
                       .bytes = state.bytes,
                       .of = state.block});
    state.ready_us = now_us_;
    state.awaited = Awaited::nothing;
    state.phase = Phase::ready;
    complete_step(index);
    queue(index);
    if (rank.thread_waiters > 0) threads_.push_back(state.rank);
}

void SimulatedRanks::want_thread(int32_t index) {
    wait(index, Phase::thread);
    blocks_[size_t(index)].begin_us = now_us_;
    threads_.push_back(blocks_[size_t(index)].rank);
}

// Called after all events of one time, so that the order of those events has no effect. A block runs until it waits.
// Then the next block gets the thread.
void SimulatedRanks::give_threads() {
    for (size_t i = 0; i < threads_.size(); ++i) {
        SimulatedRank& rank = ranks_[size_t(threads_[i])];
        for (int place = 0; place < rank.blocks && !rank.thread_busy && rank.thread_waiters > 0; ++place) {
            const int32_t index = rank.first_block + (rank.last + place) % rank.blocks;
            if (blocks_[size_t(index)].phase != Phase::thread) continue;
            --rank.thread_waiters;
            begin(index);
        }
    }
    threads_.clear();
}

void SimulatedRanks::complete_step(int32_t index) {
    SimulatedBlock& state = blocks_[size_t(index)];
    const SimulatedRank& rank = ranks_[size_t(state.rank)];
    if (++state.iteration < state.block->instructions[size_t(state.step)].repeat) return;
    state.iteration = 0;
    ++state.step;
    if (rank.dependents == 0) return;
    for (int32_t other = rank.first_block; other < rank.first_block + rank.blocks; ++other)
        if (blocks_[size_t(other)].phase == Phase::dependency) queue(other);
}

bool SimulatedRanks::reached(const SimulatedBlock& state, const Dependency& dependency) const {
    const SimulatedRank& rank = ranks_[size_t(state.rank)];
    const SimulatedBlock& other = blocks_[size_t(rank.first_block + dependency.block)];
    return weft::internal::reached(dependency, schedules_[size_t(state.rank)].tiles, state.tile,
                                   {other.tile, other.step, other.phase == Phase::ended});
}

bool SimulatedRanks::post(int32_t index, const Instruction& instruction) {
    const SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedFlagBlock& flag_block = flag_blocks_[size_t(ranks_[size_t(state.rank)].flag_block)];
    const uint64_t tile = state.tile + uint64_t(instruction.tile);
    PhaseArrivals& meeting = flag_block.phases[instruction.phase][tile % phases_kept];
    if (meeting.tile != tile) meeting = {tile, 0, 0};
    meeting.last_us = now_us_;
    if (++meeting.posted == flag_block.members) {
        for (const int32_t waiter : flag_block.waiting)
            events_.push(now_us_ + costs_.signal_us, EventKind::wake, waiter);
        flag_block.waiting.clear();
    }
    return true;
}

bool SimulatedRanks::await(int32_t index, const Instruction& instruction) {
    const SimulatedBlock& state = blocks_[size_t(index)];
    SimulatedFlagBlock& flag_block = flag_blocks_[size_t(ranks_[size_t(state.rank)].flag_block)];
    const uint64_t tile = state.tile + uint64_t(instruction.tile);
    const PhaseArrivals& meeting = flag_block.phases[instruction.phase][tile % phases_kept];
    const bool complete = meeting.tile == tile && meeting.posted == flag_block.members;
    if (complete && meeting.last_us + costs_.signal_us <= now_us_) return true;
    if (!complete) flag_block.waiting.push_back(index);
    wait_until(index, Phase::meeting, complete ? meeting.last_us + costs_.signal_us : unlimited);
    return false;
}

double SimulatedRanks::bytes_of(const SimulatedBlock& state, const Instruction& instruction) const {
    const Schedule& schedule = schedules_[size_t(state.rank)];
    const size_t length = tile_length(shape_.bytes, shape_.tile_bytes, state.tile + uint64_t(instruction.tile));
    if (shape_.even) return double(instruction.count) * double(schedule.parts()) * double(length) / schedule.chunks;
    return double(chunk_span(instruction, state.iteration, length, schedule.chunks, schedule.parts()).bytes);
}

}  // namespace weft::internal
