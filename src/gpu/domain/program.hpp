// program.hpp: a schedule in the form in which the device's step machine reads it.
#pragma once
#include <string>
#include <vector>

#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/schedule/schedule.hpp"

namespace weft::internal::cuda {

struct Program {
    std::vector<Instruction> instructions;  // block after block
    std::vector<StepBlock> blocks;          // their connections know no more than the peer
    bool dependent = false;
};

// Why the device cannot run it; empty: it can.
std::string refusal(const Schedule& schedule);
Program program_of(const Schedule& schedule);
// Slots of a connection: message numbers wrap, so a power of two.
uint32_t slots_of(const Schedule& schedule);

}  // namespace weft::internal::cuda
