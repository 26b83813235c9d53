// msccl_races.hpp: steps of a gpu that access one place in no order, one of them writing. Only blocks and dependencies
// order steps. Messages order more steps, but no file should rely on that, and the checker does not either.
#pragma once
#include "src/msccl/msccl_operands.hpp"

namespace weft::internal::msccl {

// weftInvalidArgument: a race; its two steps are named in the file's order, so the order in which steps are walked
// does not show. A gpu whose dependencies form a cycle is walked as far as it goes. Too large a file is refused, too: the
// clocks of each block and of each step that others depend on take as many words as a gpu has blocks.
Status find_race(const File& file, const OperandLocations& operands);

}  // namespace weft::internal::msccl
