// merge.hpp: a file about a machine, and what was detected of it, as one graph. Devices are the same by bus id, cpus by
// NUMA domain, ports by name or number. The file wins for where devices are and for all that it states: images of
// clouds know what a virtual machine hides. What was detected adds the devices and attributes that the file does not
// have.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct Merged {
    Graph graph;                     // connected
    std::vector<std::string> notes;  // where the two contradict each other, a sentence each
    // Not empty: the file is of another machine, for its processors are of another architecture or vendor; a sentence.
    std::string foreign = {};
    // Why the file cannot be of the detected host: it is `foreign` or of several hosts, or this host has none of its
    // GPUs. Empty: it may be of this host.
    std::string misfit = {};
};

// weftInvalidArgument: together they are too large.
Result<Merged> merge(const Graph& file, const Graph& detected);

}  // namespace weft::internal::topology
