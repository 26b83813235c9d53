// msccl_races.hpp: finds steps of a gpu that access one place without an order, one of them writing. Only blocks and
// dependencies order steps. Messages order more steps, but neither a file nor the checker may rely on that.
#pragma once
#include "src/msccl/msccl_operands.hpp"

namespace weft::internal::msccl {

// weftInvalidArgument: a race, whose steps are named in the order of the file; the order of the run has no effect. A
// gpu whose dependencies form a cycle is checked up to the cycle. A file is also refused if its clocks are too large.
// Each block and each step with dependents has a clock, with one word for each block of the gpu.
Status find_race(const File& file, const OperandLocations& operands);

}  // namespace weft::internal::msccl
