// proof_flags.cpp: posts and waits, which are the only order between ranks in the proof, and their flag words.
#include "src/checker/proof.hpp"

namespace weft::internal {

Proof::PhaseState& Proof::phase_state(int rank, int64_t flag_tile, int phase) {
    const CheckedFlagBlock& flag_block = flag_blocks_[flag_block_of_[rank]];
    PhaseState& met = phase_states_[flag_block.first_phase + size_t(flag_tile) * 2 + phase];
    if (met.has_posted.empty()) {
        met.has_posted.resize(flag_block.ranks.size());
        met.waited.resize(flag_block.ranks.size());
        met.join.resize(clocks_->width());
    }
    return met;
}

bool Proof::execute_post(const StepContext& here) {
    const int64_t tile = flag_tile(here);
    PhaseState& met = phase_state(here.rank, tile, here.it->phase);
    if (met.has_posted[place_of_[here.rank]]) return object(error::schedule_race, here, "it posts a second time");
    // The word replaces that of an earlier tile. All ranks that wait for the earlier one have seen it; execute_wait
    // finds a later wait.
    if (tile >= options_.flag_slots)
        for (const ChunkAccess& waiter : phase_state(here.rank, tile - options_.flag_slots, here.it->phase).waited)
            if (!clocks_->ordered(waiter, here.thread))
                return object(error::schedule_race, here,
                              "it overwrites the word of tile {} of the flag block, for which {} may still wait",
                              tile - options_.flag_slots, place(waiter));
    met.has_posted[place_of_[here.rank]] = true;
    clocks_->merge(met.join.data(), clocks_->row(here.thread));
    clocks_->tick(here.thread);
    if (++met.posted == int(members(here).size()))
        for (int thread : std::exchange(met.waiting, {})) queue(thread);
    return true;
}

bool Proof::execute_wait(const StepContext& here) {
    const int64_t tile = flag_tile(here), next = tile + options_.flag_slots;
    const PhaseState& met = phase_state(here.rank, tile, here.it->phase);
    if (next < flag_blocks_[flag_block_of_[here.rank]].tiles && phase_state(here.rank, next, here.it->phase).posted > 0)
        return object(error::schedule_race, here,
                      "it waits for a word of tile {} of the flag block that tile {} may have overwritten", tile, next);
    clocks_->merge(clocks_->row(here.thread), met.join.data());
    phase_state(here.rank, tile, here.it->phase).waited[place_of_[here.rank]] = access(here);
    return true;
}

}  // namespace weft::internal
