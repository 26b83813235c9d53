// program.hpp: a schedule in the form that the device's step machine reads.
#pragma once
#include <string>
#include <vector>

#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::cuda {

struct Program {
    std::vector<Instruction> instructions;  // block after block
    std::vector<StepBlock> blocks;          // of their connections only the peer is known
    bool dependent = false;
};

// Why the device cannot run the schedule; empty: it can.
std::string refusal(const Schedule& schedule);
Program program_of(const Schedule& schedule);
// The slots of a connection: a power of two, because message numbers wrap.
uint32_t slots_of(const Schedule& schedule);

}  // namespace weft::internal::cuda
