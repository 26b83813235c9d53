// search_text.hpp: the result of a search as text: each channel, the quality of all together, and the bound.
#pragma once
#include <string>

#include "topology/search/search.hpp"

namespace weft::internal::topology {

std::string write_text(const Channels& channels);

// The bandwidth of all trees together on the kind of machine where it is least.
double tree_gbs(const Channels& channels);

// The name in lists of stops: "gpu3", "mlx5_0", "cpu1"; with the host if there are several.
std::string short_name(const Graph& graph, int node);

}  // namespace weft::internal::topology
