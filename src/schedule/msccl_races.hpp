// msccl_races.hpp: steps of a gpu that touch one place, one of them writing, in no order. Order is what blocks and
// dependencies say: messages order more, but no file should rely on that, nor does the checker.
#pragma once
#include "src/schedule/msccl_places.hpp"

namespace weft::msccl {

// weftInvalidArgument: a race; its two steps are named in the file's order, so the order in which steps are walked
// does not show. A gpu whose dependencies form a cycle is walked as far as it goes. Too large a file is refused, too: the
// clocks of each block and of each step that others depend on take as many words as a gpu has blocks.
Status find_race(const File& file, const Places& places);

}  // namespace weft::msccl
