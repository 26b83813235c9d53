// Ranks that gather or reduce different units at the same time, with WEFT_CHECK_UNITS.
#include <weft/train.h>

#include "tests/comm/on_threads.hpp"
#include "tests/error.hpp"
#include "tests/train/small_units.hpp"

using namespace weft::internal::test;

namespace {

// Two units of one size, which no other check can tell apart.
struct EqualUnits : SmallUnits {
    EqualUnits() { units[0].parameterCount = 1; }
};

weftResult_t use(weftTrainShard_t shard, int unit, bool reduces) {
    if (const auto result = weftTrainShardGather(shard, unit, nullptr); result != weftSuccess) return result;
    if (const auto result = weftTrainShardRelease(shard, unit, weftTrainForward, nullptr); result != weftSuccess)
        return result;
    return reduces ? weftTrainShardReduceScatter(shard, unit, weftTrainSynchronize, nullptr) : weftSuccess;
}

// The complaint of a rank: its calls end with train.order about `other`.
template <class Calls>
std::string order_error(weftComm_t comm, int other, const EqualUnits& units, Calls&& calls) {
    weftTrainShard_t shard = nullptr;
    if (units.create(comm, &shard) != weftSuccess) return weftGetLastError(nullptr);
    (void)weftBarrier(comm, nullptr);
    const weftResult_t result = calls(shard);
    const weftErrorInfo_t info = last_error();
    std::string seen;
    if (result != weftMismatch || info.id != std::string("train.order") || info.failedRank != other)
        seen = result == weftSuccess ? "no error" : weftGetLastError(nullptr);
    (void)weftBarrier(comm, nullptr);
    (void)weftTrainShardDestroy(shard);
    return seen;
}

}  // namespace

TEST_CASE("ranks that gather different units get an error about the first one that differs") {
    const auto wrong = on_threads(3, nullptr, [](weftComm_t comm, int rank) {
        return order_error(comm, 1, EqualUnits(), [&](weftTrainShard_t shard) {
            return weftTrainShardGather(shard, rank == 0 ? 0 : 1, nullptr);
        });
    });
    CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("ranks that reduce different units, or leave the recorded order alone, get an error") {
    const auto wrong = on_threads(2, nullptr, [](weftComm_t comm, int rank) -> std::string {
        std::string seen = order_error(comm, 1, EqualUnits(), [&](weftTrainShard_t shard) {
            (void)use(shard, 0, false);
            (void)use(shard, 1, false);
            const auto result = weftTrainShardReduceScatter(shard, rank, weftTrainSynchronize, nullptr);
            return result == weftSuccess ? weftTrainShardFinish(shard, nullptr) : result;
        });
        seen += order_error(comm, 1, EqualUnits(), [&](weftTrainShard_t shard) {
            (void)use(shard, 0, true);
            (void)use(shard, 1, true);
            (void)weftTrainShardFinish(shard, nullptr);
            // Unit 1 is gathered ahead on both ranks. Then one reduces unit 0, and the other one unit 1.
            (void)weftTrainShardGather(shard, 0, nullptr);
            (void)weftTrainShardRelease(shard, 0, weftTrainBackward, nullptr);
            (void)weftTrainShardReduceScatter(shard, rank == 0 ? 0 : 1, weftTrainSynchronize, nullptr);
            const auto result = weftTrainShardGather(shard, 1, nullptr);
            if (result == weftSuccess) (void)weftTrainShardRelease(shard, 1, weftTrainBackward, nullptr);
            return result == weftSuccess ? weftTrainShardFinish(shard, nullptr) : result;
        });
        return seen;
    });
    CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("copies of a model that reduce different units, or in different modes, get an error") {
    const auto wrong = on_threads(4, nullptr, [](weftComm_t comm, int rank) -> std::string {
        EqualUnits units;
        units.config.shardRanks = 2;
        std::string seen = order_error(comm, 2, units, [&](weftTrainShard_t shard) {
            const int first = rank < 2 ? 0 : 1;
            (void)use(shard, first, true);
            (void)use(shard, 1 - first, true);
            return weftTrainShardFinish(shard, nullptr);
        });
        seen += order_error(comm, 1, units, [&](weftTrainShard_t shard) {
            (void)use(shard, 0, false);
            (void)weftTrainShardReduceScatter(shard, 0, rank == 1 ? weftTrainAccumulate : weftTrainSynchronize,
                                              nullptr);
            return weftTrainShardFinish(shard, nullptr);
        });
        return seen;
    });
    CHECK(wrong == std::vector<std::string>(4));
}

TEST_CASE("ranks that release a unit after different passes get an error at its next gather") {
    const auto wrong = on_threads(4, nullptr, [](weftComm_t comm, int rank) -> std::string {
        std::string seen;
        for (const int reshard_ranks : {1, 2}) {
            EqualUnits units;
            units.units[0].reshardRanks = reshard_ranks;
            seen += order_error(comm, 1, units, [&](weftTrainShard_t shard) {
                (void)weftTrainShardGather(shard, 0, nullptr);
                (void)weftTrainShardRelease(shard, 0, rank == 0 ? weftTrainBackward : weftTrainForward, nullptr);
                return weftTrainShardGather(shard, 0, nullptr);
            });
        }
        return seen;
    });
    CHECK(wrong == std::vector<std::string>(4));
}

TEST_CASE("units in one order are no error, also in smaller groups") {
    const auto wrong = on_threads(4, nullptr, [](weftComm_t comm, int) -> std::string {
        EqualUnits units;
        units.units[0].reshardRanks = 2;
        units.units[1].reshardRanks = 1;
        weftTrainShard_t shard = nullptr;
        if (units.create(comm, &shard) != weftSuccess) return weftGetLastError(nullptr);
        for (int iteration = 0; iteration < 3; ++iteration) {
            for (const int unit : {0, 1, 1, 0})
                if (use(shard, unit, unit == 0) != weftSuccess) return weftGetLastError(nullptr);
            if (weftTrainShardFinish(shard, nullptr) != weftSuccess) return weftGetLastError(nullptr);
        }
        if (weftTrainShardDestroy(shard) != weftSuccess) return weftGetLastError(nullptr);
        return "";
    });
    CHECK(wrong == std::vector<std::string>(4));
}
