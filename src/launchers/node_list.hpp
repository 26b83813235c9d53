// node_list.hpp: parses Slurm's lists of nodes and of tasks per node.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

// "gpu[01-03,7],login1" is gpu01 gpu02 gpu03 gpu7 login1. Both fail with launcher.variables.
Result<std::vector<std::string>> parse_node_list(const std::string& text);
// "4(x2),1" is 4 4 1.
Result<std::vector<int>> parse_task_counts(const std::string& text);

}  // namespace weft::internal
