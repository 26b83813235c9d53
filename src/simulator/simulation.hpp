// simulation.hpp: a simulated call, and the results of its simulation. Values.
#pragma once
#include <functional>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/expand.hpp"
#include "src/simulator/fabric.hpp"

namespace weft::internal {

// Ranks that differ only in their numbers do the same at the same times. If a fabric can be turned (Fabric::rotation)
// and the schedules turn with it, the ranks of one turn are simulated and stand for all.
enum class Symmetry : uint8_t {
    none,   // every rank is simulated
    exact,  // only if the result is the same: all chunks of all tiles have one size
    even,   // also if chunks differ by 64 bytes: each counts as their mean, unless many are empty (steps_most)
};

// The reason why a step waits before it begins.
enum class Awaited : uint8_t {
    nothing,
    message,
    credit,      // a free slot
    dependency,  // a step of another block of its rank
    meeting,     // the others of its flag block
    thread,      // the only thread of its rank
};

// One step that moved bytes, of a simulated rank.
struct SimulatedStep {
    int rank, block, step, iteration;
    uint64_t tile;
    double ready_us, begin_us, end_us;  // the step before it ended at `ready_us`; it waited until `begin_us`
    Awaited awaited;                    // what it waited for last, if it waited
    double bytes;
    const Block* of;  // valid during the call
};

// The new load of a link: bytes a microsecond of all its flows. Links are those of one turn, as in LinkUse.
struct SimulatedLoad {
    int link;
    double at_us, bytes_per_us;
};

// The work of a simulation, as far as its ranks have been prepared.
struct SimulatedEffort {
    int ranks, prepared = 0;  // ranks that are simulated
    uint64_t steps = 0;       // of those prepared, in all tiles
    bool too_uneven = false;  // every rank is simulated, because many chunks are empty
};

struct SimulatedCall {
    std::function<Schedule(int rank)> schedule;  // includes fused instructions
    size_t bytes = 0;                            // of one part (base/collective.hpp)
    size_t tile_bytes = 0;                       // of one part; 0: the planner's value for the slots of the fabric
    size_t wanted_tile_bytes = 0;                // of the whole message, as in Algorithm::tile_bytes
    DirectMode mode = {};
    Symmetry symmetry = Symmetry::even;
    // Symmetry::even: chunks count as their mean also if many are empty, when all ranks would take more steps than this.
    uint64_t steps_most = UINT64_MAX;
    // Called after the preparation of each rank. A failure ends the simulation, so that a caller can refuse one of
    // hours.
    std::function<Status(const SimulatedEffort&)> weigh = {};
    std::function<void(const SimulatedStep&)> observe = {};       // steps come in the order of their ends
    std::function<void(const SimulatedLoad&)> observe_load = {};  // called whenever a load changes
};

struct LinkUse {
    int link;
    int alike;     // number of links with this use: this link and those that it turns into
    double bytes;  // bytes of each of them
    double busy;   // share of the time in which the link carried something
    double load;   // carried bytes over the bytes that it could have carried
};
struct RankUse {
    double end_us = 0;  // end of its last step
    double idle = 1;    // share of the time in which none of its blocks worked
};
struct BlockUse {
    int rank, block;
    double end_us, idle;
};

struct Simulation {
    double us = 0;
    int critical_rank = 0;  // the rank that ends last; of several the lowest
    int ranks_simulated = 0;
    bool even = false;      // chunks counted as their mean although sizes differ
    size_t tile_bytes = 0;  // of a part
    uint64_t tiles = 0;
    uint64_t messages = 0;         // of all ranks
    double message_bytes = 0;      // of all ranks
    uint64_t events = 0;           // simulated
    std::vector<LinkUse> links;    // links that carried something, the highest load first
    std::vector<RankUse> ranks;    // by rank
    std::vector<BlockUse> blocks;  // of the ranks simulated
};

}  // namespace weft::internal
