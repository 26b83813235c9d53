// description.hpp: a machine as its host tells it to the hosts of the other ranks: equal machines have equal texts.
#pragma once
#include <string>

#include "topology/model/graph.hpp"

namespace weft::internal::topology {

// A topology file of the graph, connected or not, without what tells hosts of one kind apart or is of one process:
// names of hosts and NVLink domains, identifiers of ports, bus ids but those of GPUs, ranks, parts of the processors.
// Empty: the graph is of several hosts. gpus: whether their links are known; else they are left unnamed.
std::string describe(const Graph& graph, bool gpus = true);
// The same of one of its hosts, as if it were alone.
std::string describe_host(const Graph& graph, int host, bool gpus = true);

// The NVLink domain that all GPUs of the host are in, which other hosts may be in, too; empty: there is none.
std::string shared_domain(const Graph& graph, int host = 0);

}  // namespace weft::internal::topology
