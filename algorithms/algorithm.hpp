// algorithm.hpp: what the rest of Weft knows of an algorithm: one row of registry.cpp.
#pragma once
#include "src/schedule/layout.hpp"
#include "src/schedule/schedule.hpp"

namespace weft {

struct Parameters {
    int channels = 1;
    int root = -1;  // of a rooted collective
};

struct Algorithm {
    const char* name;  // as in WEFT_ALGO and in logs
    Collective collective;
    Schedule (*build)(const Layout& layout, const Parameters& parameters);  // reentrant, time proportional to its steps
    // Predicted microseconds for a whole of `bytes`; used to compare, so a constant error in all is harmless.
    double (*predict_us)(const Layout& layout, const LinkCosts& costs, size_t bytes);
    const char* cost;                                 // in words
    const char* (*refuses)(const Layout&) = nullptr;  // why it cannot serve such a layout; null: it can
    // The tile at which it expects to be fastest, where smaller ones than its slots allow pay; null: as large as may
    // be.
    size_t (*tile_bytes)(const Layout& layout, const LinkCosts& costs, size_t bytes) = nullptr;

    const char* refusal(const Layout& layout) const { return refuses ? refuses(layout) : nullptr; }
};

}  // namespace weft
