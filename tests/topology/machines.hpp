// machines.hpp: the machines of tests/topology/machines as graphs, and their nodes by the names people give them.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "topology/files/topology_xml.hpp"
#include "topology/model/graph.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::test {

// `below` tests/topology: "machines", "broken"; sorted.
std::vector<std::filesystem::path> files_in(const std::string& below);
std::string file_text(const std::filesystem::path& path);
// Of machines/NAME.xml; a file that cannot be read ends the test.
topology::ReadTopology read_machine(const std::string& name);
// "gpu0" by dev, "cpu1" by NUMA domain, a port by its name, else a bus id; ends the test if there is none.
int node_named(const topology::Graph& graph, const std::string& name, int host = 0);

}  // namespace weft::internal::test
