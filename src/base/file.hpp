// file.hpp: a whole file as text.
#pragma once
#include <cstddef>
#include <string>

#include "src/base/result.hpp"

namespace weft {

// weftInvalidUsage: it is larger; weftSystemError: it cannot be read. Both name it. Reentrant.
Result<std::string> read_file(const std::string& name, size_t bytes_most);
// In the place of what it held. weftSystemError: it cannot be written. Reentrant.
Status write_file(const std::string& name, const std::string& text);

}  // namespace weft
