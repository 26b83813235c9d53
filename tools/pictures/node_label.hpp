// node_label.hpp: the text on a device in a picture: its name, then its most important properties.
#pragma once
#include <string>
#include <vector>

#include "topology/model/graph.hpp"

namespace weft::internal::tools {

// Sizes of a device's text in pixels.
constexpr double name_size = 11, fact_size = 9, line_height = 13;

// One line or more; the first line is the name.
std::vector<std::string> label_of(const topology::Graph& graph, int node);

// Whether a NIC stands for the system's networks without a device. Such a NIC's link to its CPU is not drawn.
bool is_no_device(const topology::Graph& graph, int node);

}  // namespace weft::internal::tools
