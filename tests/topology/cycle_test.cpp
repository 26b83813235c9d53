// The cheapest way round: against all orders where there are few places, against one that is known where there are many.
#include "topology/search/cycle.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/amount.hpp"
#include "tests/catch.hpp"

using namespace weft::internal::topology;

TEST_CASE("with few places the cycle is the cheapest of all, or none where there is none", "[topology]") {
    INFO("seed " << weft::internal::test::seed());
    std::mt19937 random(weft::internal::test::seed());
    for (int places = 2; places <= 7; ++places) {
        for (int round = 0; round < 20; ++round) {
            CostMatrix costs(places);
            for (double& cost : costs.costs) cost = random() % 4 == 0 ? INFINITY : double(random() % 100);
            std::vector<int> order(static_cast<size_t>(places));
            std::iota(order.begin(), order.end(), 0);
            double least = INFINITY;
            const auto cost_of = [&](const std::vector<int>& it) {
                double cost = 0;
                for (size_t i = 0; i < it.size(); ++i) cost += costs.at(it[i], it[(i + 1) % it.size()]);
                return cost;
            };
            do least = std::min(least, cost_of(order));
            while (std::next_permutation(order.begin() + 1, order.end()));
            int64_t steps = 0;
            const Cycle found = cheapest_cycle(costs, steps);
            CHECK(found.cost == least);
            if (least < INFINITY) CHECK(cost_of(found.order) == least);
            if (least == INFINITY) CHECK(found.order.empty());
        }
    }
}

TEST_CASE("with many places a cheap cycle is found among expensive ways, in few steps", "[topology]") {
    INFO("seed " << weft::internal::test::seed());
    std::mt19937 random(weft::internal::test::seed());
    for (const int places : {exact_cycle_most + 1, 24, 72}) {
        std::vector<int> hidden(static_cast<size_t>(places));
        std::iota(hidden.begin(), hidden.end(), 0);
        std::shuffle(hidden.begin(), hidden.end(), random);
        CostMatrix costs(places);
        for (double& cost : costs.costs) cost = 10 + double(random() % 10);
        for (size_t i = 0; i < hidden.size(); ++i) costs.at(hidden[i], hidden[(i + 1) % hidden.size()]) = 1;
        int64_t steps = 0;
        const Cycle found = cheapest_cycle(costs, steps);
        CHECK(found.cost <= 1.5 * places);
        CHECK(found.order.front() == 0);
        CHECK(steps < 20'000'000);
    }
}
