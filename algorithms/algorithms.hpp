// algorithms.hpp: the functions that algorithms.def names, and the code that several algorithms share.
#pragma once
#include "algorithms/algorithm.hpp"

namespace weft::internal {

#define WEFT_ALGORITHM(name, collective, build, predict_us, refuses, tile_bytes, traits, cost) \
    Schedule build(const Layout& layout, const Parameters& parameters);                        \
    double predict_us(const Layout& layout, const LinkCosts& costs, size_t bytes);             \
    const char* refuses(const Layout& layout);                                                 \
    size_t tile_bytes(const Layout& layout, const LinkCosts& costs, size_t bytes);
#include "algorithms/algorithms.def"
#undef WEFT_ALGORITHM

// The reason why there are too many ranks on a host for connections between all of them; null: there are not.
const char* too_many_of_a_host(const Layout& layout);

}  // namespace weft::internal
