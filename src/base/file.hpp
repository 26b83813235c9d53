// file.hpp: a whole file as text.
#pragma once
#include <cstddef>
#include <string>

#include "src/base/result.hpp"

namespace weft {

// Opening a pipe waits for who writes it, reading it for their end: for commands, not for what options name.
enum class Pipes { refused, read };
// weftInvalidUsage: it is larger, or a pipe; weftSystemError: it cannot be read. Both name it. Reentrant.
Result<std::string> read_file(const std::string& name, size_t bytes_most, Pipes pipes = Pipes::refused);
// In the place of what it held. weftSystemError: it cannot be written. Reentrant.
Status write_file(const std::string& name, const std::string& text);

}  // namespace weft
