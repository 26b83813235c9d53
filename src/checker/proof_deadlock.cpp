// proof_deadlock.cpp: the checker's messages: the place of an error, and the cycle of waiting threads in a deadlock.

#include "src/checker/proof.hpp"
#include "src/schedule/text.hpp"

namespace weft::internal {

std::string Proof::step_name(int rank, int block, int step) const {
    if (options_.step_name) return options_.step_name(rank, block, step);
    return fmt::format("rank {}, block {}, step {}", rank, block, step);
}

std::string Proof::place(const StepContext& here) const {
    return fmt::format("operation {}, {} ({})", rank_states_[here.rank].operation,
                       step_name(here.rank, here.block, here.step), text_of(*here.it, here.iteration));
}

std::string Proof::place(const ChunkAccess& access) const {
    const int rank = access.thread / blocks_, block = access.thread % blocks_;
    if (access.step < 0) return fmt::format("the user of rank {}", rank);
    const Instruction& it = operations_[access.operation].schedules[rank].blocks[block].instructions[access.step];
    return fmt::format("{} ({})", step_name(rank, block, access.step), text_of(it));
}

bool Proof::object_to_race(const StepContext& here, const char* what, const ChunkAccess& earlier, const char* did,
                           Buffer buffer, int rank) {
    const std::string user = earlier.step < 0 ? " (the call may not have begun there)" : "";
    return object(error::schedule_race, here, "it {} chunk {} of the {} of rank {}, {} by {}, in no order{}", what,
                  here.chunk, name_of(buffer), rank, did, place(earlier), user);
}

// The event that a blocked thread waits for. `next`: the thread that could cause it, or -1.
std::string Proof::waits_for(int thread, int& next) const {
    const StepContext now = here(thread);
    next = -1;
    auto block_on = [&](int rank, bool sending, int connection) {
        if (rank_states_[rank].operation == int(operations_.size())) return -1;
        const auto& ends = operations_[rank_states_[rank].operation].ends[rank];
        for (int b = 0; b < int(ends.size()); ++b)
            if ((sending ? ends[b].second : ends[b].first) == connection && !threads_[rank * blocks_ + b].ended)
                return rank * blocks_ + b;
        return -1;
    };
    std::string text = place(now) + " waits for ";
    const Dependency& after = now.it->after;
    if (after != Dependency() && int(threads_[now.rank * blocks_ + after.block].releases[after.step].size()) <=
                                     threads_[thread].run - after.ago) {
        next = now.rank * blocks_ + after.block;
        return text + (options_.step_name ? options_.step_name(now.rank, after.block, after.step)
                                          : fmt::format("step {} of block {}", after.step, after.block));
    }
    if (waits(now.it->opcode)) {
        const CheckedFlagBlock& flag_block = flag_blocks_[flag_block_of_[now.rank]];
        const PhaseState& met = phase_states_[flag_block.first_phase + size_t(flag_tile(now)) * 2 + now.it->phase];
        const int rank =
            flag_block.ranks[std::find(met.has_posted.begin(), met.has_posted.end(), false) - met.has_posted.begin()];
        for (int b = 0; b < blocks_; ++b)
            if (!threads_[rank * blocks_ + b].ended) next = rank * blocks_ + b;
        return text + fmt::format("rank {} to post", rank);
    }
    const auto [source, target] = now.operation->ends[now.rank][now.block];
    if (receives(now.it->opcode) && connections_[source].slots.empty()) {
        next = block_on(connections_[source].source, true, source);
        return text + fmt::format("a chunk from rank {}{}", connections_[source].source,
                                  next < 0 ? ", which sends no more" : "");
    }
    next = block_on(connections_[target].target, false, target);
    return text + fmt::format("a free slot to rank {} ({} of {} are full){}", connections_[target].target,
                              connections_[target].slots.size(), fifo_depth(now),
                              next < 0 ? ", which receives no more" : "");
}

Status Proof::deadlock() const {
    int thread = 0;
    while (threads_[thread].ended || rank_states_[thread / blocks_].operation == int(operations_.size())) ++thread;
    std::string text = "deadlock: ";
    std::vector<int> told;
    for (int links = 0; thread >= 0 && links < 4; ++links) {
        if (std::find(told.begin(), told.end(), thread) != told.end()) break;
        told.push_back(thread);
        if (links > 0) text += "; ";
        text += waits_for(thread, thread);
    }
    return fail(error::schedule_deadlock, "{}", text);
}

Status Proof::leftovers() const {
    for (const CheckedConnection& connection : connections_)
        if (!connection.slots.empty())
            return fail(error::schedule_set,
                        "rank {} sends chunk {} to rank {} on channel {}, in step {}, which never receives it",
                        connection.source, connection.slots[0].chunk, connection.target, connection.channel,
                        connection.slots[0].step);
    return ok();
}

}  // namespace weft::internal
