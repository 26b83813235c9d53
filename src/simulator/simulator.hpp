// simulator.hpp: how long a collective call would take on a machine that is described, not there: all ranks' schedules,
// step by step, over links that messages share. docs/design/simulator.md describes the model and its
// accuracy.
//
// A step waits for its message, for a free slot and for what it runs after, as the executor's do; takes step_us; then
// moves its bytes as a flow (flows.hpp) over the route's links, at most as fast as the block copies or adds up. Tiles,
// chunks, slots and credits are the executor's. Fused instructions are simulated as their expansions.
#pragma once
#include <functional>
#include <vector>

#include "src/base/result.hpp"
#include "src/schedule/expand.hpp"
#include "src/simulator/fabric.hpp"

namespace weft::internal {

// Ranks of which nothing tells them apart but their numbers do the same at the same times. Where a fabric can be turned
// (Fabric::rotation) and the schedules turn with it, those of one turn are simulated, and stand for all.
enum class Symmetry : uint8_t {
    none,   // every rank by itself
    exact,  // where it changes nothing: all chunks are of one size, in all tiles
    even,   // also where chunks differ, by 64 bytes: each counts as the mean of them, unless many of them are empty
};

// What a step waits for before it begins.
enum class Awaited : uint8_t {
    nothing,
    message,
    credit,      // a free slot
    dependency,  // a step of another block of its rank
    meeting,     // the others of its flag block
    thread,      // its rank's only one
};

// One step that moved bytes, of a rank that was simulated.
struct SimulatedStep {
    int rank, block, step, iteration;
    uint64_t tile;
    double ready_us, begin_us, end_us;  // the step before it ended at `ready_us`; it waited until `begin_us`
    Awaited awaited;                    // last, if it waited
    double bytes;
    const Block* of;  // for the time of the call
};

// From then on: bytes a microsecond of all flows on the link. Links are those of one turn, as in LinkUse.
struct SimulatedLoad {
    int link;
    double at_us, bytes_per_us;
};

// What a simulation takes, as far as its ranks have been prepared.
struct SimulatedEffort {
    int ranks, prepared = 0;  // that are simulated
    uint64_t steps = 0;       // of those prepared, in all tiles
    bool too_uneven = false;  // every rank is simulated, for many of the chunks are empty
};

struct SimulatedCall {
    std::function<Schedule(int rank)> schedule;  // fused instructions and all
    size_t bytes = 0;                            // of a part (base/collective.hpp)
    size_t tile_bytes = 0;                       // of a part; 0: as the planner has it, by the fabric's slots
    size_t wanted_tile_bytes = 0;                // of the whole, as Algorithm::tile_bytes has it
    DirectMode mode = {};
    Symmetry symmetry = Symmetry::even;
    // After each rank's preparation; a failure ends it, so that nobody waits for what takes hours.
    std::function<Status(const SimulatedEffort&)> weigh = {};
    std::function<void(const SimulatedStep&)> observe = {};       // in the order of their ends
    std::function<void(const SimulatedLoad&)> observe_load = {};  // whenever it changes
};

struct LinkUse {
    int link;
    int alike;     // so many links have this use, this one and those that it turns into
    double bytes;  // of each of them
    double busy;   // share of the time in which anything was on it
    double load;   // bytes over what it could have carried
};
struct RankUse {
    double end_us = 0;  // of its last step
    double idle = 1;    // share of the time in which none of its blocks did anything
};
struct BlockUse {
    int rank, block;
    double end_us, idle;
};

struct Simulation {
    double us = 0;
    int critical_rank = 0;  // ends last; of several the lowest
    int ranks_simulated = 0;
    bool even = false;      // chunks were counted as of one size, though they are not
    size_t tile_bytes = 0;  // of a part
    uint64_t tiles = 0;
    uint64_t messages = 0;         // of all ranks
    double message_bytes = 0;      // of all ranks
    uint64_t events = 0;           // simulated
    std::vector<LinkUse> links;    // that carried anything, those with the highest load first
    std::vector<RankUse> ranks;    // by rank
    std::vector<BlockUse> blocks;  // of the ranks simulated
};

// Reentrant. weftInvalidArgument: the schedules do not fit the fabric, or each other, or wait for each other for ever,
// with a sentence that says who waits.
Result<Simulation> simulate(const Fabric& fabric, const SimulatedCall& call);

}  // namespace weft::internal
