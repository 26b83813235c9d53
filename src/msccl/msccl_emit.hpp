// msccl_emit.hpp: what the walk over an MSCCL program has found out (msccl_flow.hpp), written as schedules.
#pragma once
#include <string>
#include <vector>

#include "src/msccl/msccl_flow.hpp"

namespace weft::internal::msccl {

// Two, so that a tile is on its way while the one before is still looked at.
inline constexpr int32_t fifo_depth_least = 2;

// Which step of the file an instruction was made of.
struct SourceStep {
    int32_t block = -1, step = -1, line = 0;  // block: its id; -1: of none, it is Weft's
};
using SourceSteps = std::vector<std::vector<SourceStep>>;  // by block and instruction

struct Emitted {
    Schedule schedule;
    SourceSteps origins;
};

// The file's name, as far as it is letters, digits and _.
std::string algorithm_name(const File& file);
// All ranks', with slots for a whole tile: no sender ever waits.
std::vector<Emitted> emit(const File& file, const Shape& shape, const std::vector<RankFlow>& flow);

}  // namespace weft::internal::msccl
