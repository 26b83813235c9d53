// stable_sends.hpp: finds instructions that may send zero-copy: they give the receiver the address of their chunk in
// place of a copy in a slot. The receiver reads the chunk until it releases the slot, many instructions of this rank
// later. So no later step of the schedule may write that chunk, also if input and output are the same memory.
#pragma once
#include <vector>

#include "src/schedule/schedule.hpp"

namespace weft::internal {

// By block and instruction; empty if there is none. A zero-copy send sends its `source`; the other instructions send
// from the output.
std::vector<std::vector<bool>> find_stable_sends(const Schedule& schedule);

}  // namespace weft::internal
