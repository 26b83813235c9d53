#include "src/checker/checked_flags.hpp"

#include <algorithm>
#include <utility>

namespace weft::internal {

CheckedFlags::PhaseState& CheckedFlags::phase_state(int rank, int64_t flag_tile, int phase) {
    const CheckedFlagBlock& flag_block = set_.flag_blocks()[size_t(set_.flag_block_of(rank))];
    PhaseState& met = phases_[flag_block.first_phase + size_t(flag_tile) * 2 + phase];
    if (met.has_posted.empty()) {
        met.has_posted.resize(flag_block.ranks.size());
        met.waited.resize(flag_block.ranks.size());
        met.join.resize(clocks_.width());
    }
    return met;
}

bool CheckedFlags::post(const StepContext& here) {
    const int64_t tile = here.flag_tile();
    PhaseState& met = phase_state(here.rank, tile, here.it->phase);
    if (met.has_posted[size_t(set_.places()[size_t(here.rank)])])
        return verdict_.object(error::schedule_race, here, "it posts a second time");
    // The word replaces that of an earlier tile. All ranks that wait for the earlier one have seen it; execute_wait
    // finds a later wait.
    if (tile >= set_.options().flag_slots)
        for (const ChunkAccess& waiter :
             phase_state(here.rank, tile - set_.options().flag_slots, here.it->phase).waited)
            if (!clocks_.ordered(waiter, here.thread))
                return verdict_.object(
                    error::schedule_race, here,
                    "it overwrites the word of tile {} of the flag block, for which {} may still wait",
                    tile - set_.options().flag_slots, verdict_.place(waiter));
    met.has_posted[size_t(set_.places()[size_t(here.rank)])] = true;
    clocks_.merge(met.join.data(), clocks_.row(here.thread));
    clocks_.tick(here.thread);
    if (++met.posted == int(set_.members(here.rank).size()))
        for (int thread : std::exchange(met.waiting, {})) queue_.add(thread);
    return true;
}

bool CheckedFlags::wait(const StepContext& here) {
    const int64_t tile = here.flag_tile(), next = tile + set_.options().flag_slots;
    const PhaseState& met = phase_state(here.rank, tile, here.it->phase);
    if (next < set_.flag_blocks()[size_t(set_.flag_block_of(here.rank))].tiles &&
        phase_state(here.rank, next, here.it->phase).posted > 0)
        return verdict_.object(error::schedule_race, here,
                               "it waits for a word of tile {} of the flag block that tile {} may have overwritten",
                               tile, next);
    clocks_.merge(clocks_.row(here.thread), met.join.data());
    phase_state(here.rank, tile, here.it->phase).waited[size_t(set_.places()[size_t(here.rank)])] = {
        here.thread, clocks_.now(here.thread), here.number, here.step};
    return true;
}

bool CheckedFlags::ready(const StepContext& here) {
    PhaseState& met = phase_state(here.rank, here.flag_tile(), here.it->phase);
    if (met.posted == int(set_.members(here.rank).size())) return true;
    met.waiting.push_back(here.thread);
    return false;
}

int CheckedFlags::missing_rank(const StepContext& here) const {
    const CheckedFlagBlock& flag_block = set_.flag_blocks()[size_t(set_.flag_block_of(here.rank))];
    const PhaseState& met = phases_[flag_block.first_phase + size_t(here.flag_tile()) * 2 + here.it->phase];
    return flag_block
        .ranks[size_t(std::find(met.has_posted.begin(), met.has_posted.end(), false) - met.has_posted.begin())];
}

}  // namespace weft::internal
