// algorithm_named.hpp: finds the collective and the registry's row that a command line names.
#pragma once
#include <string>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft::internal::tools {

// Accepts Weft's name and common spellings: `allreduce`, `AllReduce`, `all-reduce`.
// The text of weftInvalidArgument lists all names.
Result<Collective> collective_meant(const std::string& name);
// Finds the algorithm of a collective; errors as above.
Result<const Algorithm*> algorithm_named(const std::string& algorithm, const std::string& collective);

}  // namespace weft::internal::tools
