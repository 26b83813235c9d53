#include "src/checker/proof.hpp"

#include <algorithm>

namespace weft::internal {

Proof::Proof(const CheckedSet& set)
    : set_(set),
      blocks_(set.blocks()),
      clocks_(set.places(), set.members_most(), set.blocks()),
      verdict_(set),
      queue_(size_t(set.ranks()) * size_t(set.blocks())),
      memory_(set, clocks_, verdict_),
      flags_(set, clocks_, verdict_, queue_),
      connections_(set, memory_, verdict_, queue_),
      threads_(size_t(set.ranks()) * size_t(set.blocks())),
      ranks_(size_t(set.ranks())) {}

bool Proof::returned(int rank) const { return ranks_[size_t(rank)].operation == int(set_.operations().size()); }

Status Proof::run() {
    // The lowest rank leaves the queue first, so that messages name low ranks.
    for (int rank = set_.ranks() - 1; rank >= 0; --rank)
        if (!begin_operation(rank)) return verdict_.take();
    for (int thread = queue_.take(); thread >= 0; thread = queue_.take())
        if (!run_thread(thread)) return verdict_.take();
    for (int rank = 0; rank < set_.ranks(); ++rank)
        if (!returned(rank)) return deadlock();
    return connections_.leftovers();
}

// The user has written the input and may have used the output before the call. Operations without instructions end at
// once.
bool Proof::begin_operation(int rank) {
    RankProgress& state = ranks_[size_t(rank)];
    const int first_thread = rank * blocks_;
    for (; !returned(rank); ++state.operation) {
        const Schedule& schedule = set_.operations()[size_t(state.operation)].schedules[size_t(rank)];
        memory_.begin(rank, state.operation, {first_thread, clocks_.now(first_thread), state.operation, -1});
        // The call releases all blocks; the first steps of all blocks come after it.
        for (int b = 1; b < blocks_; ++b) clocks_.merge(clocks_.row(first_thread + b), clocks_.row(first_thread));
        clocks_.tick(first_thread);
        state.blocks_left = 0;
        for (int b = 0; b < blocks_; ++b) {
            ThreadState& thread = threads_[size_t(first_thread + b)];
            const bool works = b < int(schedule.blocks.size()) && !schedule.blocks[size_t(b)].instructions.empty();
            thread.run = thread.step = thread.iteration = 0;
            thread.releases.assign(works ? schedule.blocks[size_t(b)].instructions.size() : 0, {});
            state.blocks_left += works;
            queue_.set_ended(first_thread + b, !works);
            queue_.add(first_thread + b);
        }
        if (state.blocks_left > 0) return true;
        if (!memory_.end(rank)) return false;
    }
    return true;
}

// All blocks have ended; then the user writes both buffers.
bool Proof::end_operation(int rank) {
    const int first_thread = rank * blocks_;
    for (int b = 1; b < blocks_; ++b) clocks_.merge(clocks_.row(first_thread), clocks_.row(first_thread + b));
    if (!memory_.end(rank)) return false;
    for (int b = 1; b < blocks_; ++b) clocks_.tick(first_thread + b);
    ++ranks_[size_t(rank)].operation;
    return begin_operation(rank);
}

StepContext Proof::here(int thread) const {
    const ThreadState& state = threads_[size_t(thread)];
    const int rank = thread / blocks_, block = thread % blocks_, number = ranks_[size_t(rank)].operation;
    const LoadedOperation& operation = set_.operations()[size_t(number)];
    const Schedule& schedule = operation.schedules[size_t(rank)];
    const Instruction& it = schedule.blocks[size_t(block)].instructions[size_t(state.step)];
    return {thread,
            rank,
            block,
            state.step,
            state.iteration,
            number,
            &operation,
            &schedule,
            &it,
            state.run * schedule.tiles + it.tile,
            it.chunk.at(state.iteration)};
}

bool Proof::run_thread(int thread) {
    ThreadState& state = threads_[size_t(thread)];
    while (!queue_.ended(thread)) {
        const StepContext now = here(thread);
        if (!ready(now)) return true;
        ++steps_;
        if (state.iteration == 0 && now.it->after != Dependency()) {
            const ThreadState& other = threads_[size_t(now.rank * blocks_ + now.it->after.block)];
            const int run = state.run - now.it->after.ago;
            if (run >= 0)
                clocks_.merge(clocks_.row(thread), other.releases[size_t(now.it->after.step)][size_t(run)].data());
        }
        if (!execute(now)) return false;
        if (++state.iteration < now.it->repeat) continue;
        state.iteration = 0;
        complete_step(now);
        if (++state.step < int(now.schedule->blocks[size_t(now.block)].instructions.size())) continue;
        state.step = 0;
        queue_.set_ended(thread, ++state.run == now.operation->call->runs);
    }
    const int rank = thread / blocks_;
    return --ranks_[size_t(rank)].blocks_left > 0 || end_operation(rank);
}

// Releases everything before this step to the steps that run after it.
void Proof::complete_step(const StepContext& here) {
    if (!here.operation->depended[size_t(here.rank)][size_t(here.block)][size_t(here.step)]) return;
    const uint32_t* row = clocks_.row(here.thread);
    threads_[size_t(here.thread)].releases[size_t(here.step)].emplace_back(row, row + clocks_.width());
    clocks_.tick(here.thread);
    for (int b = 0; b < blocks_; ++b)
        if (b != here.block) queue_.add(here.rank * blocks_ + b);
}

// Whether the step that this one runs after is not done.
bool Proof::depends(const StepContext& here) const {
    const Dependency& after = here.it->after;
    if (after == Dependency()) return false;
    const ThreadState& other = threads_[size_t(here.rank * blocks_ + after.block)];
    return int(other.releases[size_t(after.step)].size()) <= threads_[size_t(here.thread)].run - after.ago;
}

bool Proof::ready(const StepContext& here) {
    if (depends(here)) return false;
    if (waits(here.it->opcode)) return flags_.ready(here);
    return here.skipped() || connections_.ready(here);
}

bool Proof::execute(const StepContext& here) {
    const Opcode opcode = here.it->opcode;
    if (here.skipped() || opcode == Opcode::nop) return true;
    switch (kind_of(opcode)) {
        case OpcodeKind::connection: return connections_.execute(here);
        case OpcodeKind::flag: return posts(opcode) ? flags_.post(here) : flags_.wait(here);
        case OpcodeKind::fused: return verdict_.object(here, "it is fused");
        case OpcodeKind::local: break;
    }
    for (int offset = 0; offset < here.it->count; ++offset) {
        const StepContext there = here.at(offset);
        if (!there.empty() && !memory_.execute(there)) return false;
    }
    return true;
}

// A block of the rank that could still send (or receive) on the connection; -1: none.
int Proof::block_on(int rank, bool sending, int connection) const {
    if (returned(rank)) return -1;
    const auto& ends = set_.operations()[size_t(ranks_[size_t(rank)].operation)].ends[size_t(rank)];
    for (int b = 0; b < int(ends.size()); ++b)
        if ((sending ? ends[size_t(b)].second : ends[size_t(b)].first) == connection &&
            !queue_.ended(rank * blocks_ + b))
            return rank * blocks_ + b;
    return -1;
}

// The event that a blocked thread waits for. `next`: the thread that could cause it, or -1.
std::string Proof::waits_for(int thread, int& next) const {
    const StepContext now = here(thread);
    next = -1;
    const std::string text = verdict_.place(now) + " waits for ";
    if (depends(now)) {
        const Dependency& after = now.it->after;
        next = now.rank * blocks_ + after.block;
        return text + (set_.options().step_name ? verdict_.step_name(now.rank, after.block, after.step)
                                                : fmt::format("step {} of block {}", after.step, after.block));
    }
    if (waits(now.it->opcode)) {
        const int rank = flags_.missing_rank(now);
        for (int b = 0; b < blocks_; ++b)
            if (!queue_.ended(rank * blocks_ + b)) next = rank * blocks_ + b;
        return text + fmt::format("rank {} to post", rank);
    }
    const auto [source, target] = now.operation->ends[size_t(now.rank)][size_t(now.block)];
    if (receives(now.it->opcode) && !connections_.has_message(source)) {
        const int sender = set_.connections()[size_t(source)].source;
        next = block_on(sender, true, source);
        return text + fmt::format("a chunk from rank {}{}", sender, next < 0 ? ", which sends no more" : "");
    }
    const int receiver = set_.connections()[size_t(target)].target;
    next = block_on(receiver, false, target);
    return text + fmt::format("a free slot to rank {} ({} of {} are full){}", receiver, connections_.full_slots(target),
                              connections_.depth(now), next < 0 ? ", which receives no more" : "");
}

// The chain of waiting threads, up to four or a cycle.
Status Proof::deadlock() const {
    int thread = 0;
    while (queue_.ended(thread) || returned(thread / blocks_)) ++thread;
    std::string text = "deadlock: ";
    std::vector<int> named;
    for (int links = 0; thread >= 0 && links < 4; ++links) {
        if (std::find(named.begin(), named.end(), thread) != named.end()) break;
        named.push_back(thread);
        if (links > 0) text += "; ";
        text += waits_for(thread, thread);
    }
    return fail(error::schedule_deadlock, "{}", text);
}

}  // namespace weft::internal
