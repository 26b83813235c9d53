// search_text.hpp: what a search has found, for people: each channel, how good they are together, and what bounds them.
#pragma once
#include <string>

#include "topology/search/search.hpp"

namespace weft::internal::topology {

std::string write_text(const Channels& channels);

// What all trees together reduce and hand back, of the machines that are slowest at it.
double tree_gbs(const Channels& channels);

// As channels list their stops: "gpu3", "mlx5_0", "cpu1"; of several hosts with the host before.
std::string short_name(const Graph& graph, int node);

}  // namespace weft::internal::topology
