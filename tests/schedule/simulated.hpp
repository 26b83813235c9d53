// simulated.hpp: helpers of tests that simulate calls on fabrics.
#pragma once
#include <utility>

#include "src/registry.hpp"
#include "src/simulator/simulator.hpp"
#include "tests/catch.hpp"

namespace weft::internal {

inline Simulation simulated(const Fabric& fabric, const SimulatedCall& call) {
    auto found = simulate(fabric, call);
    INFO(found.status().sentence());
    REQUIRE(found);
    return std::move(*found);
}

// Two channels.
inline SimulatedCall all_reduce(const char* name, Layout layout, size_t bytes) {
    SimulatedCall call;
    call.bytes = bytes;
    call.schedule = [row = registry::find_algorithm(name, Collective::all_reduce), layout](int rank) mutable {
        layout.rank = rank;
        return row->build(layout, {.channels = 2});
    };
    return call;
}

}  // namespace weft::internal
