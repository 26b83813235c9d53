// host_graph.hpp: the graph of this host that the calls of a process share.
#pragma once
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// Detected at the first call, which takes some 20 ms. `gpus`: with what NVML knows of them, which may take longer. Empty:
// the host is unknown. Thread-safe.
const Graph& host_graph(bool gpus);

}  // namespace weft::internal::topology
