// channels.hpp: what a search has found as pictures: a circle for each ring, or for those that are the same, in a colour of
// its own, and how trees join machines.
#pragma once
#include "tools/pictures/svg.hpp"
#include "topology/search/search.hpp"

namespace weft::internal::tools {

constexpr size_t circles_most = 16;        // of one kind of machine
constexpr size_t stops_most = 40;          // of a circle
constexpr size_t tree_machines_most = 16;  // joined by a tree that is drawn

// In rows of some `width` pixels.
void draw_channels(Svg& svg, const topology::Channels& channels, Point at, double width);

}  // namespace weft::internal::tools
