// description.hpp: the description of a host that its ranks exchange: equal machines have equal texts.
#pragma once
#include <string>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// A topology file of the graph, connected or not, without facts that differ between hosts of one kind or belong to one
// process. These are names of hosts and NVLink domains, identifiers of ports, bus ids except those of GPUs, ranks, and
// parts of the processors. Empty: the graph has several hosts. gpus: whether their links are known; else they are
// omitted.
std::string describe(const Graph& graph, bool gpus = true);
// The same for one of its hosts alone.
std::string describe_host(const Graph& graph, int host, bool gpus = true);

// The NVLink domain of all GPUs of the host, which other hosts may share; empty: there is none.
std::string shared_domain(const Graph& graph, int host = 0);

}  // namespace weft::internal::topology
