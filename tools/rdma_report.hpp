// rdma_report.hpp: InfiniBand and RoCE in `weft info`: the ports, which of them each rank would use, and why not.
#pragma once
#include <nlohmann/json.hpp>

#include "tools/environment_check.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// `graph`: this host; null: unknown. Adds what is wrong with the user's settings to the check.
nlohmann::ordered_json describe_rdma(const topology::Graph* graph, EnvironmentCheck& check);
void print_rdma(const nlohmann::ordered_json& rdma);

}  // namespace weft::internal::tools
