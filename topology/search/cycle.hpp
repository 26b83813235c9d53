// cycle.hpp: the cheapest cycle through a number of places: exact for a dozen, by local search for more.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::internal::topology {

constexpr int exact_cycle_most = 11;  // places; each doubles the time of the exact search

// Square, by rows: from one place to another; infinite: there is no path.
struct CostMatrix {
    explicit CostMatrix(int places) : places(places), costs(size_t(places) * size_t(places)) {}
    double& at(int from, int to) { return costs[size_t(from) * size_t(places) + size_t(to)]; }
    double at(int from, int to) const { return costs[size_t(from) * size_t(places) + size_t(to)]; }

    int places;
    std::vector<double> costs;
};

struct Cycle {
    double cost = 0;         // infinite: none was found
    std::vector<int> order;  // begins with place 0
};

// Among equally cheap ones, always the same one. Adds its work to `steps`.
Cycle cheapest_cycle(const CostMatrix& costs, int64_t& steps);

}  // namespace weft::internal::topology
