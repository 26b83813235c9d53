// algorithm_named.hpp: the registry's row that a command line names.
#pragma once
#include <string>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft::tools {

// weftInvalidArgument lists what there is.
Result<const Algorithm*> algorithm_named(const std::string& algorithm, const std::string& collective);

}  // namespace weft::tools
