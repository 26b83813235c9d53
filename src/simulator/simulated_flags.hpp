// simulated_flags.hpp: the flag blocks of a simulation: the posts of each phase and tile, and the blocks that wait for them.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "src/schedule/schedule.hpp"
#include "src/simulator/fabric.hpp"

namespace weft::internal {

class SimulatedFlags {
  public:
    // The flag blocks of these schedules, which are those of the ranks that are simulated, of `ranks` in all.
    void load(const std::vector<Schedule>& schedules, int ranks);
    // A post of a rank. If it is the last one of the phase, the blocks to wake.
    std::vector<int32_t> post(int rank, int phase, uint64_t tile, double now_us);
    // When the last rank has posted the phase; unlimited, if not all have. Then `block` is kept until they have.
    double complete_us(int rank, int phase, uint64_t tile, int32_t block);

  private:
    struct PhaseArrivals {
        uint64_t tile = ~uint64_t(0);
        int32_t posted = 0;
        double last_us = 0;
    };
    static constexpr int phases_kept = 64;  // most tiles that ranks of a flag block can be apart, in any phase
    struct SimulatedFlagBlock {
        int32_t members = 0;  // members that are simulated
        PhaseArrivals phases[2][phases_kept];
        std::vector<int32_t> waiting;  // blocks
    };

    std::vector<SimulatedFlagBlock> flag_blocks_;
    std::vector<int32_t> flag_block_of_;  // by rank; -1: it has none
};

}  // namespace weft::internal
