// connect.hpp: makes the links of a graph.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// Makes the links of the tree, between all cpus of a host, and of the statements, with NVSwitch nodes where statements
// lead to one. If a graph of several hosts states no domain, all its NVSwitches are one: NCCL dumps several hosts only if
// they share a domain. Then `notes` gets a sentence for each statement that is ignored or changed.
// weftInvalidArgument: a rank appears twice.
Status connect(Graph& graph, std::vector<std::string>& notes);

}  // namespace weft::internal::topology
