// Random models, settings and iterations of data-parallel training, against sums in doubles.
#include <weft/train.h>

#include <algorithm>
#include <random>

#include "tests/amount.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/train/trained_rank.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

// Everything that all ranks know.
struct Scenario {
    explicit Scenario(uint32_t seed) : random(seed), seed(seed) {
        const weftDataType_t types[] = {weftFloat16, weftBfloat16, weftFloat32, weftFloat64};
        ranks = 1 + int(random() % 4);
        model.resize(1 + random() % 12);
        for (auto& [type, count] : model) {
            type = types[random() % 4];
            count = random() % 4 ? random() % 200 : random() % 2;
        }
        config.bucketCapBytes = random() % 3 ? 1 + random() % 1000 : 0;
        config.findUnused = random() % 2 ? 1 : 0;
        config.staticGraph = random() % 4 ? 0 : 1;
        config.join = random() % 2 ? 1 : 0;
        config.divisor = random() % 2 ? weftTrainDivideByActive : weftTrainDivideByRanks;
        config.broadcastBuffers = random() % 2 ? 1 : 0;
        batches = 1 + int(random() % 3);
        for (int rank = 0; rank < ranks; ++rank)
            steps.push_back(config.join ? int(random() % 5) : rank == 0 ? 3 : steps[0]);
    }
    // Whether a rank's iteration has a gradient of the parameter.
    bool uses(int rank, int iteration, int parameter) const {
        if (!config.findUnused && !config.staticGraph) return true;
        std::mt19937 own(seed + uint32_t(rank) * 31 + uint32_t(parameter) * 1009 +
                         (config.staticGraph ? 0 : uint32_t(iteration) * 17));
        return own() % 3 > 0;
    }
    // Of one step of a rank; false: it has none.
    bool sum(int rank, int step, int parameter, size_t i, double& sum) const {
        bool any = false;
        for (int batch = 0; step < steps[size_t(rank)] && batch < batches; ++batch) {
            if (!uses(rank, step * batches + batch, parameter)) continue;
            any = true;
            sum += gradient_element(rank, step * batches + batch, parameter, i);
        }
        return any;
    }

    std::mt19937 random;
    uint32_t seed;
    int ranks = 1, batches = 1;
    std::vector<int> steps;  // of each rank
    std::vector<std::pair<weftDataType_t, size_t>> model;
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
};

// The gradients of one iteration, in an order of the rank's own, one by one or many at once.
void backward(TrainedRank& rank, const Scenario& scenario, int iteration, std::vector<bool>& computed,
              std::mt19937& random) {
    std::vector<int> order;
    for (int p = 0; p < rank.parameters(); ++p)
        if (scenario.uses(rank.rank(), iteration, p)) order.push_back(p);
    std::shuffle(order.begin(), order.end(), random);
    const size_t together = random() % 2 ? random() % (order.size() + 1) : 0;
    for (size_t i = 0; i < order.size(); ++i) {
        rank.compute(order[i], iteration, computed[size_t(order[i])]);
        computed[size_t(order[i])] = true;
        if (i >= together) rank.ready(order[i]);
        if (i + 1 == together) rank.check(weftTrainDdpGradientsReady(rank.ddp(), order.data(), together, nullptr));
    }
}

std::string run(Scenario scenario, weftComm_t comm, int own) {
    TrainedRank rank(comm, scenario.config, scenario.model);
    std::mt19937 random(scenario.seed * 7 + uint32_t(own));
    // A rank without a step in the first epoch may have some in the second one.
    for (int epoch = 0; epoch < (scenario.config.join ? 2 : 1); ++epoch) {
        for (int step = 0; step < scenario.steps[size_t(own)]; ++step) {
            std::vector<bool> computed(scenario.model.size(), false);
            for (int batch = 0; batch < scenario.batches; ++batch) {
                rank.begin(batch == scenario.batches - 1 ? weftTrainSynchronize : weftTrainAccumulate);
                backward(rank, scenario, step * scenario.batches + batch, computed, random);
                rank.finish();
            }
            const auto active =
                std::count_if(scenario.steps.begin(), scenario.steps.end(), [&](int all) { return all > step; });
            const double divisor =
                scenario.config.divisor == weftTrainDivideByActive ? double(active) : double(scenario.ranks);
            rank.expect(
                [&](int p, size_t i) {
                    double all = 0;
                    bool any = false;
                    for (int r = 0; r < scenario.ranks; ++r) any |= scenario.sum(r, step, p, i, all);
                    // A gradient that no rank has stays as it was in the caller's own memory.
                    return any || p % 2 == 0 ? all / divisor : rank.gradient_at(p, i);
                },
                "average", 100);
        }
        if (scenario.config.join) rank.check(weftTrainDdpJoin(rank.ddp(), nullptr));
        std::rotate(scenario.steps.begin(), scenario.steps.begin() + 1, scenario.steps.end());
    }
    return rank.wrong();
}

}  // namespace

TEST_CASE("random models are trained as the sums of their gradients say") {
    const uint32_t first = seed();
    for (uint32_t i = 0; i < (small() ? 20u : 60u); ++i) {
        const uint32_t number = first + i;
        const Scenario scenario(number);
        CAPTURE(number, scenario.ranks, scenario.config.join, scenario.config.findUnused, scenario.config.staticGraph);
        for (const std::string& wrong :
             on_threads(scenario.ranks, nullptr, [&](weftComm_t comm, int own) { return run(scenario, comm, own); }))
            CHECK(wrong == "");
    }
}
