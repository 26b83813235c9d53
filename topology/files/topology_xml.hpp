// topology_xml.hpp: NCCL's topology files, read and written. Cloud images ship partial ones: a pci element of a GPU's
// class is a GPU though no <gpu> stands in it, and what is empty, zero or missing is unknown.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct ReadTopology {
    Graph graph;  // connected
    std::vector<std::string>
        notes;  // what was skipped, left out or taken for something, a sentence each, with its line
};

constexpr size_t topology_file_bytes_most = size_t(64) << 20;  // of the largest graph that is read

// weftInvalidArgument: what is wrong, with line and column. Time and memory are proportional to the file.
Result<ReadTopology> read_topology(std::string_view xml);

// As NCCL dumps it; what is unknown is left out. Links added by Graph::add_link have no form there.
std::string write_topology(const Graph& graph);

}  // namespace weft::internal::topology
