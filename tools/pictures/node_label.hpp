// node_label.hpp: what a picture writes on a device: its name, then what one wants to know of it at a glance.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// A line or more, the first one its name.
std::vector<std::string> label_of(const topology::Graph& graph, int node);

// A NIC that stands for networks of the operating system's that no device has: what links it to its cpu is no link.
bool is_no_device(const topology::Graph& graph, int node);

}  // namespace weft::internal::tools
