// node_list.hpp: Slurm's short forms: which nodes, and how many tasks on each.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

// "gpu[01-03,7],login1" is gpu01 gpu02 gpu03 gpu7 login1. What is no such list is a sentence.
Result<std::vector<std::string>> parse_node_list(const std::string& text);
// "4(x2),1" is 4 4 1.
Result<std::vector<int>> parse_task_counts(const std::string& text);

}  // namespace weft::internal
