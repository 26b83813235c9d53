// binding.hpp: which processor each rank of this machine gets.
#pragma once
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal::tools {

// The processors this process may run on, one hardware thread of every core first, then the cores' other threads: rank
// r takes entry r modulo the size, so that ranks share a core only when there are more of them than cores.
Result<std::vector<int>> binding_order();

// Binds the calling process to one processor. Returns 0 or errno. For a child between fork and exec.
int bind_to(int processor);

}  // namespace weft::internal::tools
