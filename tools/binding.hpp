// binding.hpp: chooses a processor for each rank of this machine.
#pragma once
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::tools {

// The processors of this process: first one hardware thread of every core, then the cores' other threads.
// Rank r takes entry r modulo the size, so ranks share a core only if there are more ranks than cores.
Result<std::vector<int>> binding_order();

// Binds the calling process to one processor; returns 0 or errno. For a child between fork and exec.
int bind_to(int processor);

}  // namespace weft::internal::tools
