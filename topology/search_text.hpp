// search_text.hpp: what a search has found, for people: each channel, how good they are together, and what bounds them.
#pragma once
#include <string>

#include "topology/search.hpp"

namespace weft::topology {

std::string write_text(const Channels& channels);

}  // namespace weft::topology
