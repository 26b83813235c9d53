// registry.hpp: the tables of all algorithms and transports; who wants to know what exists walks them.
#pragma once
#include <span>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "transports/transport.hpp"

namespace weft::registry {

std::span<const Algorithm> algorithms();
const Algorithm* find_algorithm(std::string_view name);  // null: there is none of that name

std::span<const Transport> transports();  // in order of preference

}  // namespace weft::registry
