// machine.hpp: pictures of machines: hosts with nested boxes for CPUs, PCI switches, GPUs and NICs.
// The width of a link follows its bandwidth. Equal hosts are drawn once.
#pragma once
#include "src/base/result.hpp"
#include "tools/pictures/svg.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::tools {

constexpr int nodes_drawn_most = 400;

// Draws a connected graph with a legend below; `copies` is the number of equal hosts.
// weftInvalidUsage: the picture would be too large to read.
Status draw_machine(Svg& svg, const topology::Graph& graph, int copies, Point at);

}  // namespace weft::internal::tools
