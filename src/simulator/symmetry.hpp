// symmetry.hpp: whether the ranks of one turn of a fabric can stand for all ranks (simulator.hpp). That is so if the
// turn maps the schedules onto each other.
//
// The result is exact. All ranks start in a state that the turn leaves unchanged. The first event of a rank happens at
// the same time to all ranks that it stands for. No rule of the simulator prefers one of them: links give equal shares,
// and nothing overtakes. So the turn leaves the next state unchanged too.
#pragma once
#include <functional>
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Whether all chunks of such a tile have one size. `length`: bytes of one part.
bool chunks_alike(const Schedule& schedule, size_t length);

// Whether `other` is `one` turned by the distance of their ranks: the same steps with the same numbers of chunks, to
// and from ranks at the same distances. `period`: the ranks of a turn. A rank that a step reads counts as its place in
// the turn.
bool turns_into(const Schedule& one, const Schedule& other, int period);

// Whether each flag block of the first `period` ranks either has all ranks, or only ranks that stand for different
// ones.
bool shared_ranks_turn(const Schedule& schedule, int period);

}  // namespace weft::internal
