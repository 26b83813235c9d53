// topology_xml.hpp: reads and writes NCCL's topology files. Cloud images have partial ones: a pci element with a GPU's
// class is a GPU even without <gpu>, and empty, zero or missing attributes are unknown.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct ReadTopology {
    Graph graph;                     // connected
    std::vector<std::string> notes;  // ignored, omitted or assumed parts, a sentence each, with the line
};

constexpr size_t topology_file_bytes_most = size_t(64) << 20;  // of the largest graph that is read

// weftInvalidArgument: the fault, with line and column. Time and memory are proportional to the file.
Result<ReadTopology> read_topology(std::string_view xml);

// In NCCL's form, without unknown attributes. Links of Graph::add_link have no form there.
std::string write_topology(const Graph& graph);

}  // namespace weft::internal::topology
