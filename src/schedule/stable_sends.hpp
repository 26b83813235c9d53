// stable_sends.hpp: which instructions may lend what they send: tell the receiver where it lies, in place of a copy in a
// slot. It reads there until it releases the slot, when this rank may be many instructions further on, so what is lent
// must last: no later step of the schedule may write it, also where input and output are the same memory.
#pragma once
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// By block and instruction; empty if there is none. Of those that lend, `source` of a send and the output of the
// others.
std::vector<std::vector<bool>> find_stable_sends(const Schedule& schedule);

}  // namespace weft::internal
