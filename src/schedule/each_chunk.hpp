// each_chunk.hpp: the chunks of an instruction, in all its iterations.
#pragma once
#include "src/schedule/instruction.hpp"

namespace weft::internal {

// Calls use(chunk) for each chunk. `first`: of the instruction, `chunk` or `into`.
template <class Use>
void each_chunk(const Instruction& instruction, const Index& first, Use&& use) {
    for (int iteration = 0; iteration < instruction.repeat; ++iteration)
        for (int offset = 0; offset < instruction.count; ++offset) use(size_t(first.at(iteration, offset)));
}

}  // namespace weft::internal
