// Slow ranks are named: reports in the same step on all ranks, scores, the log, and wrong use.
#include <weft/train.h>

#include <array>
#include <cmath>
#include <latch>
#include <limits>

#include "tests/capture.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"

using namespace weft::internal::test;

namespace {

weftTrainStragglersConfig_t each_steps(uint64_t steps) {
    weftTrainStragglersConfig_t config = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
    config.intervalSteps = steps;
    return config;
}

}  // namespace

TEST_CASE("all ranks get the golden scores, and rank 0 names the straggler") {
    const double medians[] = {1, 1, 2, 1.25};
    std::array<std::vector<double>, 4> fastest, own;
    Capture captured(stderr);
    const auto wrong = on_threads(4, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        const weftTrainStragglersConfig_t config = each_steps(3);
        weftTrainStragglers_t object = nullptr;
        if (weftTrainStragglersCreate(&object, comm, &config) != weftSuccess) return weftGetLastError(nullptr);
        std::vector<double> scores(4);
        if (weftTrainStragglersGetScores(object, weftTrainFastestRank, scores.data(), 4) != weftInvalidUsage)
            return "scores before a report";
        for (int report = 0; report < 2; ++report)
            for (int step = 0; step < 3; ++step) {
                // The median of three times counts. Rank 3 was faster in the first report.
                const double median = report == 0 && rank == 3 ? 1 : medians[rank];
                int reported = -1;
                if (weftTrainStragglersStep(object, median * (step == 0 ? 9 : 1), &reported) != weftSuccess)
                    return weftGetLastError(nullptr);
                if (reported != (step == 2)) return "a report in another step";
            }
        (void)weftTrainStragglersGetScores(object, weftTrainFastestRank, scores.data(), 4);
        fastest[size_t(rank)] = scores;
        if (weftTrainStragglersGetScores(object, weftTrainOwnBest, scores.data(), 4) != weftSuccess) return "no scores";
        own[size_t(rank)] = scores;
        if (weftTrainStragglersGetScores(object, weftTrainFastestRank, scores.data(), 3) != weftInvalidArgument)
            return "3 scores of 4";
        return weftTrainStragglersDestroy(object) == weftSuccess ? "" : "no end";
    });
    const std::string log = captured.end();
    CHECK(wrong == std::vector<std::string>(4));
    for (size_t rank = 0; rank < 4; ++rank) {
        CHECK(fastest[rank] == std::vector<double>{1, 1, 0.5, 0.8});
        CHECK(own[rank] == std::vector<double>{1, 1, 1, 0.8});
    }
    // 0.8 is above the threshold. Once a report, by rank 0 alone.
    size_t named = 0;
    for (size_t at = 0; (at = log.find("is a straggler", at)) != std::string::npos; ++at) ++named;
    CHECK(named == 2);
    CHECK(log.find("[0] WEFT WARN rank 2 on host ") != std::string::npos);
    CHECK(log.find("score 0.50 against the fastest rank, 1.00 against its own best") != std::string::npos);
}

TEST_CASE("without a number of steps the first report comes after ten steps, and one may ask for more") {
    const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        weftTrainStragglers_t object = nullptr;
        if (weftTrainStragglersCreate(&object, comm, nullptr) != weftSuccess) return weftGetLastError(nullptr);
        for (int step = 0; step < 10; ++step) {
            int reported = -1;
            if (weftTrainStragglersStep(object, rank == 1 ? 0 : 1, &reported) != weftSuccess)
                return weftGetLastError(nullptr);
            if (reported != (step == 9)) return "a report in another step";
        }
        double scores[3];
        if (weftTrainStragglersGetScores(object, weftTrainFastestRank, scores, 3) != weftSuccess) return "no scores";
        if (scores[0] != 1 || !std::isnan(scores[1]) || scores[2] != 1) return "scores of ranks without work";
        if (weftTrainStragglersStep(object, 1 + rank, nullptr) != weftSuccess) return "no step";
        if (weftTrainStragglersReport(object) != weftSuccess) return "no report";
        if (weftTrainStragglersGetScores(object, weftTrainFastestRank, scores, 3) != weftSuccess || scores[1] != 0.5)
            return "the second report";
        return weftTrainStragglersDestroy(object) == weftSuccess ? "" : "no end";
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("a wrong duration is an error of that rank, and the report comes with the step") {
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        const weftTrainStragglersConfig_t config = each_steps(3);
        weftTrainStragglers_t object = nullptr;
        if (weftTrainStragglersCreate(&object, comm, &config) != weftSuccess) return weftGetLastError(nullptr);
        const double bad[] = {-1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
        int reported = 0;
        for (const double seconds : bad) {
            const weftResult_t result = weftTrainStragglersStep(object, rank == 1 ? seconds : 2, &reported);
            if (result != (rank == 1 ? weftInvalidArgument : weftSuccess)) return "the result of a wrong duration";
            if (rank == 1 && newest_id() != "argument.value") return newest_id();
        }
        if (reported != 1) return "no report";
        double scores[2];
        if (weftTrainStragglersGetScores(object, weftTrainFastestRank, scores, 2) != weftSuccess || scores[0] != 1 ||
            !std::isnan(scores[1]))
            return "the scores";
        return weftTrainStragglersDestroy(object) == weftSuccess ? "" : "no end";
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("wrong settings of one rank are an error on all, and the communicator lives on") {
    struct Wrong {
        double interval, threshold;
        uint64_t steps;
        const char *own, *others;
    };
    for (const Wrong& bad :
         {Wrong{0, 0.75, 0, "argument.config", "train.model"}, Wrong{60, 1.5, 0, "argument.config", "train.model"},
          Wrong{60, 0.75, 7, "train.model", "train.model"}}) {
        const auto wrong = on_threads(3, nullptr, [&](weftComm_t comm, int rank) -> std::string {
            weftTrainStragglersConfig_t config = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
            if (rank == 1) {
                config.intervalSeconds = bad.interval;
                config.threshold = bad.threshold;
                config.intervalSteps = bad.steps;
            }
            weftTrainStragglers_t object = nullptr;
            if (weftTrainStragglersCreate(&object, comm, &config) == weftSuccess || object) return "it was made";
            if (newest_id() != (rank == 1 ? bad.own : bad.others)) return newest_id();
            return weftBarrier(comm, nullptr) == weftSuccess ? "" : "the communicator ended";
        });
        CHECK(wrong == std::vector<std::string>(3));
    }
}

TEST_CASE("a rank that aborts ends the object on all ranks") {
    std::latch rank_1_created(1);
    const auto wrong = on_threads(2, nullptr, [&](weftComm_t comm, int rank) -> std::string {
        weftTrainStragglers_t object = nullptr;
        const weftResult_t created = weftTrainStragglersCreate(&object, comm, nullptr);
        if (rank == 1) rank_1_created.count_down();
        if (created != weftSuccess) return weftGetLastError(nullptr);
        if (rank == 0) {
            rank_1_created.wait();  // an abort would end the creation, too
            if (weftTrainStragglersAbort(object) != weftSuccess) return "no abort";
        } else {
            for (int again = 0; again < 2; ++again)
                if (weftTrainStragglersReport(object) == weftSuccess) return "a report without rank 0";
        }
        (void)weftTrainStragglersDestroy(object);
        return weftBarrier(comm, nullptr) == weftSuccess ? "" : "the communicator ended";
    });
    CHECK(wrong == std::vector<std::string>(2));
    CHECK(weftTrainStragglersStep(nullptr, 1, nullptr) == weftInvalidArgument);
    CHECK(weftTrainStragglersDestroy(nullptr) == weftSuccess);
}
