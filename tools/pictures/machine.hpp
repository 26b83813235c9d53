// machine.hpp: machines as pictures: hosts with boxes in boxes for cpus, PCI switches, GPUs and NICs, and links whose width
// follows what they carry. Hosts that are alike are drawn once.
#pragma once
#include "src/base/result.hpp"
#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

constexpr int nodes_drawn_most = 400;

// Pixels of a device's lettering.
constexpr double name_size = 11, fact_size = 9, line_height = 13;

// Of a connected graph, with a legend below; `copies`: so many of each host are there. weftInvalidUsage: more than one
// could read.
Status draw_machine(Svg& svg, const topology::Graph& graph, int copies, Point at);

}  // namespace weft::internal::tools
