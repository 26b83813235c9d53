// host_kernels.hpp: the kernels' bodies compiled for the host, found by the names of their entry points: what tests and
// the fake driver launch. Not part of the library.
#pragma once
#include <string_view>

#include "src/executor/cuda/device.hpp"
#include "src/executor/cuda/kernels.hpp"

namespace weft::cuda {

// Runs one block; a block is a single thread. Blocks of a rank wait for the same blocks of other ranks, those of
// `steps` for each other too: all have to run at the same time.
using HostKernel = void (*)(const Team& team, const KernelArguments& arguments);

HostKernel host_kernel(Body body, weftDataType_t type, bool adds);
// By the name of its entry point. Null if there is no such entry point.
HostKernel find_host_kernel(std::string_view entry_point);

}  // namespace weft::cuda
