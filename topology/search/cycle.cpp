#include "topology/search/cycle.hpp"

#include <algorithm>
#include <numeric>

#include "topology/model/speeds.hpp"

namespace weft::internal::topology {

namespace {

constexpr double no_way = 1e12;
constexpr int cycle_rounds_most = 200;  // rounds of improvement; usually a small number is enough

double cost_of(const CostMatrix& costs, const std::vector<int>& order) {
    double cost = 0;
    for (size_t i = 0; i < order.size(); ++i) cost += costs.at(order[i], order[(i + 1) % order.size()]);
    return cost;
}

// Source: Held and Karp, "A dynamic programming approach to sequencing problems", 1962.
Cycle exact(const CostMatrix& costs, int64_t& steps) {
    const int others = costs.places - 1;  // place i + 1 is bit i
    const size_t sets = size_t(1) << others;
    // The cheapest path from place 0 through a set to its last place.
    std::vector<double> cost(sets * size_t(others), infinite);
    std::vector<int8_t> before(cost.size(), -1);
    const auto at = [&](size_t set, int last) { return set * size_t(others) + size_t(last); };
    for (int i = 0; i < others; ++i) cost[at(size_t(1) << i, i)] = costs.at(0, i + 1);
    for (size_t set = 1; set < sets; ++set) {
        for (int last = 0; last < others; ++last) {
            const double so_far = cost[at(set, last)];
            if (!(set >> last & 1) || so_far == infinite) continue;
            steps += others;
            for (int next = 0; next < others; ++next) {
                if (set >> next & 1) continue;
                const size_t there = at(set | size_t(1) << next, next);
                const double with = so_far + costs.at(last + 1, next + 1);
                // ascending, if all costs are equal
                if (with < cost[there] || (with == cost[there] && with < infinite)) {
                    cost[there] = with;
                    before[there] = int8_t(last);
                }
            }
        }
    }
    Cycle best{infinite, {}};
    int last = -1;
    for (int i = 0; i < others; ++i) {
        const double closed = cost[at(sets - 1, i)] + costs.at(i + 1, 0);
        if (closed <= best.cost && closed < infinite) {
            best.cost = closed;
            last = i;
        }
    }
    if (last < 0) return best;
    for (size_t set = sets - 1; last >= 0;) {
        best.order.push_back(last + 1);
        const int previous = before[at(set, last)];
        set &= ~(size_t(1) << last);
        last = previous;
    }
    best.order.push_back(0);
    std::reverse(best.order.begin(), best.order.end());
    return best;
}

std::vector<int> nearest_neighbours(const CostMatrix& costs, int first, int64_t& steps) {
    std::vector<int> order{first}, left(size_t(costs.places));
    std::iota(left.begin(), left.end(), 0);
    left.erase(left.begin() + first);
    while (!left.empty()) {
        steps += int64_t(left.size());
        const auto nearest = std::min_element(left.begin(), left.end(), [&](int one, int other) {
            return costs.at(order.back(), one) < costs.at(order.back(), other);
        });
        order.push_back(*nearest);
        left.erase(nearest);
    }
    return order;
}

// Moves runs of up to three places while that makes the cycle cheaper. It keeps directions, because costs differ by
// direction.
void improve(const CostMatrix& costs, std::vector<int>& order, int64_t& steps) {
    const size_t places = order.size();
    bool better = true;
    for (int round = 0; better && round < cycle_rounds_most; ++round) {
        better = false;
        for (size_t run = 1; run <= 3 && run + 2 <= places; ++run) {
            for (size_t from = 0; from < places; ++from) {
                std::rotate(order.begin(), order.begin() + 1, order.end());
                // The run comes first. The others are a path from the end of `run`, which is closed without it.
                const int head = order[0], tail = order[run - 1];
                const double saved =
                    costs.at(order.back(), head) + costs.at(tail, order[run]) - costs.at(order.back(), order[run]);
                double most = 1e-9;
                size_t place = 0;
                for (size_t i = run; i + 1 < places; ++i) {
                    ++steps;
                    const double gain = saved + costs.at(order[i], order[i + 1]) - costs.at(order[i], head) -
                                        costs.at(tail, order[i + 1]);
                    if (gain <= most) continue;
                    most = gain;
                    place = i + 1;
                }
                if (place == 0) continue;
                std::rotate(order.begin(), order.begin() + std::ptrdiff_t(run), order.begin() + std::ptrdiff_t(place));
                better = true;
            }
        }
    }
}

}  // namespace

Cycle cheapest_cycle(const CostMatrix& costs, int64_t& steps) {
    if (costs.places == 1) return {0, {0}};
    if (costs.places <= exact_cycle_most) return exact(costs, steps);
    // Sums and differences need finite numbers.
    CostMatrix finite = costs;
    for (double& cost : finite.costs) cost = std::min(cost, no_way);
    Cycle best{infinite, {}};
    // Several starts, each of which begins a different path.
    for (int first = 0; first < costs.places; first += std::max(1, costs.places / 4)) {
        std::vector<int> order = nearest_neighbours(finite, first, steps);
        improve(finite, order, steps);
        std::rotate(order.begin(), std::find(order.begin(), order.end(), 0), order.end());
        const double cost = cost_of(costs, order);
        if (cost < best.cost - 1e-9) best = {cost, std::move(order)};
    }
    return best;
}

}  // namespace weft::internal::topology
