// channels.hpp: pictures of a search's result: a coloured circle for each set of equal rings, and the trees of
// machines.
#pragma once
#include "tools/pictures/svg.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::tools {

constexpr size_t circles_most = 16;        // of each kind of machine
constexpr size_t stops_most = 40;          // of each circle
constexpr size_t tree_machines_most = 16;  // in a tree that is drawn

// Fills rows of about `width` pixels.
void draw_channels(Svg& svg, const topology::Channels& channels, Point at, double width);

}  // namespace weft::internal::tools
