// algorithm_named.hpp: the collective, and the registry's row, that a command line names.
#pragma once
#include <string>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// As it is called in Weft, or as people write it: `allreduce`, `AllReduce`, `all-reduce`. weftInvalidArgument lists what
// there is.
Result<Collective> collective_meant(const std::string& name);
// Likewise, for a collective so named.
Result<const Algorithm*> algorithm_named(const std::string& algorithm, const std::string& collective);

}  // namespace weft::internal::tools
