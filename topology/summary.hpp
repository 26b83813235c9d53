// summary.hpp: describes a machine in some lines, for `weft info` and the log.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// Processors with caches, GPUs with their links, NICs. Of a connected graph of one host or more.
std::vector<std::string> summarize(const Graph& graph);

}  // namespace weft::internal::topology
