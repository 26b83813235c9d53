// msccl_emit.hpp: writes the flow of an MSCCL program (msccl_flow.hpp) as schedules.
#pragma once
#include <string>
#include <vector>

#include "src/msccl/msccl_flow.hpp"

namespace weft::internal::msccl {

// Two, so that a tile can be in flight while the receiver still reads the one before.
inline constexpr int32_t fifo_depth_least = 2;

// The step of the file that an instruction comes from.
struct SourceStep {
    int32_t block = -1, step = -1, line = 0;  // block: its id; -1: the instruction is Weft's own
};
using SourceSteps = std::vector<std::vector<SourceStep>>;  // by block and instruction

struct Emitted {
    Schedule schedule;
    SourceSteps origins;
};

// The file's name without characters other than ASCII alphanumerics and _.
std::string algorithm_name(const File& file);
// The schedules of all ranks, with slots for a whole tile, so that no sender waits.
std::vector<Emitted> emit(const File& file, const Shape& shape, const std::vector<RankFlow>& flow);

}  // namespace weft::internal::msccl
