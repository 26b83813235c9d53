// symmetry.hpp: whether ranks that lie alike do alike: of schedules that a turn of the fabric makes the same, one turn's
// ranks stand for all (simulator.hpp).
//
// Why that is exact: let every rank do what the schedules say, from one state that the turn leaves as it is. Whatever
// happens first happens to a rank and, at the same time, to all that stand for it; no rule of the simulator prefers one
// of them, for links give equal shares and nobody overtakes. So the state after it is one that the turn leaves, too.
#pragma once
#include <functional>
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// Whether all chunks of such a tile are of one size. `length`: of a part.
bool chunks_alike(const Schedule& schedule, size_t length);

// Whether `other` is `one` turned by as many ranks as they are apart: the same steps, of the same numbers of chunks, to
// and from the same places ahead and behind. `period`: ranks a turn; a rank that a step reads counts as its place in
// that.
bool turns_into(const Schedule& one, const Schedule& other, int period);

// Whether the flag blocks of the first `period` ranks are made of ranks that stand for different ones, or are of all ranks.
bool shared_ranks_turn(const Schedule& schedule, int period);

}  // namespace weft::internal
