// merge.hpp: merges a file about a machine and the detected machine into one graph. Devices are equal by bus id, cpus
// by NUMA domain, ports by name or number. The file wins for the place of devices and for all that it states, because
// images of clouds know facts that a virtual machine hides. Detection adds missing devices and attributes.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct Merged {
    Graph graph;                     // connected
    std::vector<std::string> notes;  // contradictions between the two, a sentence each
    // Not empty: the file is of another machine, whose processors have another architecture or vendor; a sentence.
    std::string foreign = {};
    // The reason why the file cannot be of the detected host: it is `foreign`, or of several hosts, or this host has
    // none of its GPUs. Empty: it may be of this host.
    std::string misfit = {};
};

// weftInvalidArgument: together they are too large.
Result<Merged> merge(const Graph& file, const Graph& detected);

}  // namespace weft::internal::topology
