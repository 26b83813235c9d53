// checked_flags.hpp: posts and waits, which are the only order between ranks in the proof, and their flag words.
#pragma once
#include <vector>

#include "src/checker/thread_queue.hpp"
#include "src/checker/verdict.hpp"

namespace weft::internal {

class CheckedFlags {
  public:
    CheckedFlags(const CheckedSet& set, Clocks& clocks, Verdict& verdict, ThreadQueue& queue)
        : set_(set), clocks_(clocks), verdict_(verdict), queue_(queue), phases_(set.phases()) {}

    // Whether all ranks have posted the phase that this step waits for. If not, the last post adds the thread to the
    // queue.
    bool ready(const StepContext& here);
    bool post(const StepContext& here);
    bool wait(const StepContext& here);
    // The lowest rank that has not posted the phase that this step waits for.
    int missing_rank(const StepContext& here) const;

  private:
    // One phase of one tile of a flag block.
    struct PhaseState {
        int posted = 0;
        std::vector<bool> has_posted;     // by place in the flag block
        std::vector<uint32_t> join;       // of the clocks of all that have posted
        std::vector<ChunkAccess> waited;  // by place
        std::vector<int> waiting;         // threads
    };
    PhaseState& phase_state(int rank, int64_t flag_tile, int phase);

    const CheckedSet& set_;
    Clocks& clocks_;
    Verdict& verdict_;
    ThreadQueue& queue_;
    std::vector<PhaseState> phases_;  // by flag block, its tile and phase
};

}  // namespace weft::internal
