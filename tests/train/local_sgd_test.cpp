// Local SGD and DiLoCo: wrong settings, and ranks that differ.
#include <cmath>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/local_ranks.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

weftTrainLocalConfig_t streaming_config() {
    weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
    config.method = weftTrainDiloco;
    config.period = 6;
    config.fragments = 2;
    return config;
}

}  // namespace

TEST_CASE("wrong settings are an error with an id on all ranks, and their communicator lives on") {
    using Change = void (*)(weftTrainLocalConfig_t&);
    const Change changes[] = {
        [](weftTrainLocalConfig_t& config) { config.period = 0; },
        [](weftTrainLocalConfig_t& config) { config.fragments = 4; },
        [](weftTrainLocalConfig_t& config) { config.fragments = 0; },
        [](weftTrainLocalConfig_t& config) { config.delay = 3; },
        [](weftTrainLocalConfig_t& config) { config.learningRate = NAN; },
        [](weftTrainLocalConfig_t& config) { config.momentum = 1; },
        [](weftTrainLocalConfig_t& config) { config.mix = 1.5; },
        [](weftTrainLocalConfig_t& config) { config.warmup = 1; },
        [](weftTrainLocalConfig_t& config) { config.method = weftTrainLocalMethod_t(2); },
        [](weftTrainLocalConfig_t& config) { config.method = weftTrainAverage; },
        [](weftTrainLocalConfig_t& config) { config.magic = 0; },
    };
    for (const Change change : changes) {
        const auto ids = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            LocalRank own({{weftFloat32, 3}}, [](int, size_t) { return 1.0; });
            weftTrainLocalConfig_t config = streaming_config();
            if (rank == 1) change(config);
            weftTrainLocal_t local = nullptr;
            if (!weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config)) return "no error";
            const std::string id = last_error().id;
            int one = 1;
            return weftAllReduce(&one, &one, 1, weftInt32, weftSum, comm, nullptr) ? "dead" : id;
        });
        CHECK(ids == std::vector<std::string>{"train.model", "argument.config"});
    }
}

TEST_CASE("ranks with different settings or parameters get one sentence that names both") {
    using Change = void (*)(LocalRank&, weftTrainLocalConfig_t&);
    const std::pair<Change, const char*> changes[] = {
        {[](LocalRank&, weftTrainLocalConfig_t& config) { config.period = 8; }, "period 8"},
        {[](LocalRank&, weftTrainLocalConfig_t& config) { config.mix = 0.5; }, "mix 0.5"},
        {[](LocalRank& own, weftTrainLocalConfig_t&) { own.tensors[0].count = 2; }, "2 elements"},
    };
    for (const auto& each : changes) {
        const Change change = each.first;
        const auto sentences = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            LocalRank own({{weftFloat32, 3}}, [](int, size_t) { return 1.0; });
            weftTrainLocalConfig_t config = streaming_config();
            if (rank == 1) change(own, config);
            weftTrainLocal_t local = nullptr;
            if (weftTrainLocalCreate(&local, comm, own.tensors.data(), 1, &config) != weftMismatch) return "no error";
            return last_error().failedRank == 1 ? weftGetLastError(nullptr) : "another rank";
        });
        CHECK(sentences[0].find(each.second) != std::string::npos);
        CHECK(sentences == std::vector<std::string>(3, sentences[0]));
    }
}
