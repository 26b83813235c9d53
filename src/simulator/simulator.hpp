// simulator.hpp: predicts the time of a collective call on a machine that is only described. The schedules of all ranks
// run step by step over links that messages share. docs/design/simulator.md describes the model and its accuracy.
//
// A step waits for its message, for a free slot and for its dependency, as in the executor, and takes step_us. Then it
// moves its bytes as a flow (flows.hpp) over the links of the route, at most as fast as the block copies or reduces.
// Tiles, chunks, slots and credits are those of the executor. Fused instructions are simulated as their expansions.
#pragma once
#include "src/simulator/fabric.hpp"
#include "src/simulator/simulation.hpp"

namespace weft::internal {

// Reentrant. weftInvalidArgument: the schedules do not fit the fabric or each other, or deadlock. The sentence names
// the waiting ranks.
Result<Simulation> simulate(const Fabric& fabric, const SimulatedCall& call);

}  // namespace weft::internal
