// text.hpp: a graph as text: the tree of each host, the links across it, and the matrix of paths between GPUs, ports
// and cpus as in `nvidia-smi topo -m`, with bandwidths.
#pragma once
#include <string>

#include "topology/model/graph.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

// "16 x L2 2 MiB of 2 threads"
std::string cache_text(const Cache& cache);

// Of a connected graph.
std::string write_text(const Graph& graph, PathOptions options = {});

}  // namespace weft::internal::topology
