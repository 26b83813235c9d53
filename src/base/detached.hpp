// detached.hpp: threads of the library's own that nobody joins.
#pragma once
#include <functional>

#include "src/base/result.hpp"

namespace weft {

// Runs it on a thread without signals, which are for the program's own threads. Fails if there can be none. `name`: at
// most 15 letters. Thread-safe.
Status run_detached(const char* name, std::function<void()> function);

}  // namespace weft
