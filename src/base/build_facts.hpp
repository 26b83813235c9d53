// build_facts.hpp: version and compiler of this library, for logs and `weft info`.
#pragma once
#include <string>
#include <vector>

namespace weft::internal {

std::string library_version();   // "0.1.0"
std::string library_compiler();  // "GCC 12.2.0"
// The sanitizers compiled in, as -fsanitize names them.
std::vector<std::string> library_sanitizers();

}  // namespace weft::internal
