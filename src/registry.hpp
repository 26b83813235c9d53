// registry.hpp: the tables of all algorithms and transports.
#pragma once
#include <span>
#include <string_view>

#include "algorithms/algorithm.hpp"
#include "transports/transport.hpp"

namespace weft::internal::registry {

std::span<const Algorithm> algorithms();
// Null: there is none of that name for that collective.
const Algorithm* find_algorithm(std::string_view name, Collective collective = Collective::all_reduce);

std::span<const Transport> transports();  // in order of preference

}  // namespace weft::internal::registry
