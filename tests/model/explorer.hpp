// explorer.hpp: tries every interleaving of a scenario, breadth first, so that a broken promise comes with a shortest
// trace.
#pragma once
#include <string>
#include <vector>

#include "tests/model/flag_block_model.hpp"

namespace weft::internal::model {

struct Report {
    size_t states = 0;
    size_t depth = 0;                // steps of the longest shortest path
    std::string broken;              // the promise that was broken; empty: none
    std::vector<std::string> trace;  // the steps that lead there
    std::string text() const;
};

// A 64-bit hash identifies a state: at 10^7 states the odds that one is missed are about 10^-6.
Report explore(const Scenario& scenario);

}  // namespace weft::internal::model
