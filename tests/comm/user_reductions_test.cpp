// user_reductions_test.cpp: reductions that are functions of the user's, through the C interface: under every
// algorithm, in and out of place, commutative and not; one that throws; ranks whose reductions differ.
#include <weft/weft.hpp>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/comm/on_threads.hpp"
#include "tests/comm/user_functions.hpp"

namespace weft::internal::test {
namespace {

struct Counter {
    std::atomic<int> calls{0};
    std::atomic<size_t> most{0};
};

template <uint64_t (*combine)(uint64_t, uint64_t)>
void each(const void* left, const void* right, void* result, size_t count, weftDataType_t type, void* context) {
    auto* const counter = static_cast<Counter*>(context);
    ++counter->calls;
    if (count > counter->most) counter->most = count;
    if (type != weftUint64) throw std::logic_error("another type");
    for (size_t i = 0; i < count; ++i)
        static_cast<uint64_t*>(result)[i] =
            combine(static_cast<const uint64_t*>(left)[i], static_cast<const uint64_t*>(right)[i]);
}

std::vector<uint64_t> input_of(int rank, size_t count) {
    std::mt19937_64 random(seed() + uint32_t(rank));
    std::vector<uint64_t> input(count);
    for (uint64_t& element : input) element = random();
    return input;
}

template <uint64_t (*combine)(uint64_t, uint64_t)>
std::string try_all(weftComm_t comm, int rank, int ranks, bool commutative, Counter& counter) {
    weftRedOp_t op = weftSum;
    if (weftRedOpCreate(&op, each<combine>, &counter, weftUint64, commutative, comm) != weftSuccess)
        return weftGetLastError(comm);
    for (const size_t part : {1, 7, 700, 30'000}) {
        if (small() && part > 1000) continue;
        const size_t count = part * size_t(ranks);
        std::vector<uint64_t> expected = input_of(0, count);
        for (int other = 1; other < ranks; ++other) {
            const std::vector<uint64_t> input = input_of(other, count);
            for (size_t i = 0; i < count; ++i) expected[i] = combine(expected[i], input[i]);
        }
        const std::vector<uint64_t> own = input_of(rank, count);
        std::vector<uint64_t> got(count), in_place = own, to_root(count), scattered(part), uneven(part);
        const std::vector<size_t> counts(size_t(ranks), part);
        const int root = ranks - 1;
        for (const weftResult_t code :
             {weftAllReduce(own.data(), got.data(), count, weftUint64, op, comm, nullptr),
              weftAllReduce(in_place.data(), in_place.data(), count, weftUint64, op, comm, nullptr),
              weftReduce(own.data(), to_root.data(), count, weftUint64, op, root, comm, nullptr),
              weftReduceScatter(own.data(), scattered.data(), part, weftUint64, op, comm, nullptr),
              weftReduceScatterv(own.data(), uneven.data(), counts.data(), weftUint64, op, comm, nullptr)})
            if (code != weftSuccess) return weftGetLastError(comm);
        const std::vector<uint64_t> mine(expected.begin() + rank * ptrdiff_t(part),
                                         expected.begin() + (rank + 1) * ptrdiff_t(part));
        if (got != expected) return "an all-reduce is wrong";
        if (in_place != expected) return "an all-reduce in place is wrong";
        if (rank == root && to_root != expected) return "a reduce is wrong";
        if (scattered != mine) return "a reduce-scatter is wrong";
        if (uneven != mine) return "a reduce-scatter of uneven parts is wrong";
    }
    return weftRedOpDestroy(op, comm) == weftSuccess ? "" : weftGetLastError(comm);
}

bool over_tcp() { return std::getenv("WEFT_TRANSPORTS") != nullptr; }

}  // namespace

TEST_CASE("a commutative function serves every collective that reduces, under every algorithm", "[comm]") {
    std::cout << "seed " << seed() << std::endl;
    for (const int ranks : {1, 2, 3, 5})
        for (const char* algo : {"", "one_shot", "two_shot", "ring", "recursive_doubling", "halving_doubling", "pat",
                                 "all_pairs", "rank_order", "double_binary_tree", "binomial_tree", "linear,ring"}) {
            if (over_tcp() && (strstr(algo, "shot") || ranks == 5)) continue;
            Counter counter;
            CAPTURE(ranks, algo, seed());
            for (const std::string& wrong : on_threads(ranks, algo, [&](weftComm_t comm, int rank) {
                     return try_all<circle>(comm, rank, ranks, true, counter);
                 }))
                CHECK(wrong == "");
            CHECK((counter.calls > 0) == (ranks > 1));
            if (ranks > 1 && !small()) CHECK(counter.most >= 1000);  // not element by element
        }
}

TEST_CASE("a function that does not commute gets its operands in rank order, or says that nothing keeps it", "[comm]") {
    for (const int ranks : {2, 3, 4, 6}) {
        Counter counter;
        CAPTURE(ranks, seed());
        for (const std::string& wrong : on_threads(ranks, "", [&](weftComm_t comm, int rank) {
                 return try_all<compose>(comm, rank, ranks, false, counter);
             }))
            CHECK(wrong == "");
    }
    // Said to be commutative it may come in any order, and in a ring it does.
    Counter counter;
    int differing = 0;
    for (const std::string& wrong : on_threads(
             4, "ring", [&](weftComm_t comm, int rank) { return try_all<compose>(comm, rank, 4, true, counter); }))
        differing += wrong == "an all-reduce is wrong";
    CHECK(differing > 0);
    for (const std::string& wrong : on_threads(
             3, "ring", [&](weftComm_t comm, int rank) { return try_all<compose>(comm, rank, 3, false, counter); }))
        CHECK_THAT(wrong,
                   Catch::Contains("ring: does not combine in rank order, as a reduction that is not commutative"));
}

TEST_CASE("a rank whose peer has failed leaves the peer's buffers before its whole chunk is reduced", "[comm]") {
    if (over_tcp()) return;
    constexpr size_t count = size_t(2) << 20;
    struct Gate {
        int rank;
        weftComm_t comm;
        std::atomic<bool>* begun;  // by rank 0
        size_t reduced = 0;
    };
    const auto await_failure = [](const void*, const void*, void*, size_t elements, weftDataType_t, void* context) {
        Gate& gate = *static_cast<Gate*>(context);
        if (gate.rank == 1) {
            while (!*gate.begun) std::this_thread::yield();
            throw std::runtime_error("no such colour");
        }
        *gate.begun = true;
        weftResult_t state = weftSuccess;
        while (state == weftSuccess && weftCommGetAsyncError(gate.comm, &state) == weftSuccess)
            std::this_thread::yield();
        gate.reduced += elements;
    };
    std::atomic<bool> begun{false};
    size_t reduced = 0;
    const auto wrong = on_threads(2, "two_shot", [&](weftComm_t comm, int rank) {
        Gate gate{rank, comm, &begun};
        std::vector<uint64_t> own(count), got(count);
        weftRedOp_t op = weftSum;
        if (weftRedOpCreate(&op, await_failure, &gate, weftUint64, true, comm) != weftSuccess)
            return std::string(weftGetLastError(comm));
        const weftResult_t code = weftAllReduce(own.data(), got.data(), count, weftUint64, op, comm, nullptr);
        if (rank == 0) reduced = gate.reduced;
        return code == weftSuccess ? std::string("no error") : std::string();
    });
    for (const std::string& one : wrong) CHECK(one == "");
    CHECK(reduced > 0);
    CHECK(reduced <= count / 8);
}

TEST_CASE("a function that throws ends the call on all ranks, whose errors name the rank and the reason", "[comm]") {
    const auto throws = [](const void* left, const void*, void* result, size_t count, weftDataType_t, void* context) {
        if (*static_cast<int*>(context) == 1) throw std::runtime_error("no such colour");
        if (*static_cast<int*>(context) == 2) throw 42;
        if (result != left) memcpy(result, left, count * sizeof(float));
    };
    enum Kind { whole, uneven, few, grouped, streamed, prepared_group };
    struct Way {
        const char* algo;
        Kind kind;
        int what;
        const char* told;
    };
    for (const Way& way : {Way{"two_shot", whole, 1, "no such colour"},
                           {"one_shot", whole, 2, "no std::exception"},
                           {"ring", whole, 1, "no such colour"},
                           {"", uneven, 1, "no such colour"},
                           {"linear,ring", few, 1, "no such colour"},
                           {"double_binary_tree", whole, 1, "no such colour"},
                           {"all_pairs", grouped, 1, "no such colour"},
                           {"", grouped, 2, "no std::exception"},
                           {"halving_doubling", streamed, 1, "no such colour"},
                           {"", streamed, 2, "no std::exception"},
                           {"ring", prepared_group, 1, "no such colour"}}) {
        if (over_tcp() && strstr(way.algo, "shot")) continue;
        CAPTURE(way.algo, int(way.kind));
        const auto told = on_threads(3, way.algo, [&](weftComm_t comm, int rank) -> std::string {
            int what = 0;
            weftRedOp_t op = weftSum;
            std::vector<float> buffer(30'000, 1.0f), part(10'000);
            const std::vector<size_t> counts(3, part.size());
            if (weftRedOpCreate(&op, throws, &what, weftFloat32, 1, comm) != weftSuccess) return "not made";
            weftStream_t stream = nullptr;
            weftPrepared_t prepared = nullptr;
            const auto reduce = [&](size_t count) {
                return weftAllReduce(buffer.data(), buffer.data(), count, weftFloat32, op, comm, stream);
            };
            const auto in_group = [&](auto&& end) {
                (void)weftGroupStart();
                (void)reduce(buffer.size());
                (void)reduce(100);
                return end();
            };
            if (way.kind == streamed && weftStreamCreate(&stream) != weftSuccess) return "no stream";
            if (way.kind == prepared_group && in_group([&] { return weftGroupPrepare(&prepared); }) != weftSuccess)
                return "not prepared";
            const std::unique_ptr<CUstream_st, weftResult_t (*)(weftHostStream_t)> ended(stream, weftStreamDestroy);
            const std::unique_ptr<weftPrepared, weftResult_t (*)(weftPrepared_t)> dropped(prepared,
                                                                                          weftPreparedDestroy);
            const auto call = [&] {
                if (way.kind == grouped) return in_group(weftGroupEnd);
                if (way.kind == prepared_group) return weftPreparedStart(prepared);
                if (way.kind == streamed) {
                    const weftResult_t queued = reduce(buffer.size());
                    return queued != weftSuccess ? queued : weftStreamWait(stream, WEFT_STREAM_ALL, -1);
                }
                if (way.kind == few)  // where the function runs
                    return weftReduce(buffer.data(), buffer.data(), 100, weftFloat32, op, 1, comm, nullptr);
                if (way.kind == uneven)
                    return weftReduceScatterv(buffer.data(), part.data(), counts.data(), weftFloat32, op, comm,
                                              nullptr);
                return reduce(buffer.size());
            };
            // Others may still be in it when rank 1 has gone on and thrown.
            if (call() != weftSuccess) return weftGetLastError(comm);
            if (rank == 1) what = way.what;
            // A rank that needed nothing more may return success; its next call, at the latest, returns the error.
            if (call() == weftSuccess && weftBarrier(comm, nullptr) == weftSuccess) return "nobody was told";
            return weftGetLastError(comm);
        });
        // The first of the second call.
        const char* const second = way.kind == grouped || way.kind == prepared_group ? "3" : "2";
        for (const std::string& sentence : told) {
            CHECK_THAT(sentence, Catch::Contains("rank 1") && Catch::Contains(std::string(way.told)) &&
                                     Catch::Contains(std::string("operation ") + second) &&
                                     Catch::EndsWith("[usage.function-threw]"));
        }
    }
}

TEST_CASE("ranks whose reductions are of different kinds mismatch, and the error names both", "[comm]") {
    const auto told = on_threads(2, "", [&](weftComm_t comm, int rank) -> std::string {
        weftRedOp_t op = weftSum;
        Counter counter;
        uint64_t number = 1;
        if (rank == 0 && weftRedOpCreate(&op, each<compose>, &counter, weftUint64, 1, comm) != weftSuccess) return "0";
        if (rank == 1 &&
            weftRedOpCreatePreMulSum(&op, &number, weftUint64, weftScalarHostImmediate, comm) != weftSuccess)
            return "1";
        if (weftAllReduce(&number, &number, 1, weftUint64, op, comm, nullptr) != weftMismatch) return "no mismatch";
        return weftGetLastError(comm);
    });
    for (const std::string& sentence : told) {
        CHECK_THAT(sentence, Catch::Contains("rank 0 called all_reduce of 1 uint64, user's reduction"));
        CHECK_THAT(sentence, Catch::Contains("rank 1 called all_reduce of 1 uint64, premulsum"));
    }
}

TEST_CASE("one thread that drives all ranks calls the functions of all", "[comm]") {
    std::vector<weftComm_t> comms(4);
    REQUIRE(weftCommInitAll(comms.data(), 4, nullptr) == weftSuccess);
    Counter counter;
    std::vector<weftRedOp_t> ops(4);
    std::vector<uint64_t> values = {3, 5, 7, 11}, results(4);
    REQUIRE(weftGroupStart() == weftSuccess);
    for (size_t rank = 0; rank < 4; ++rank) {
        REQUIRE(weftRedOpCreate(&ops[rank], each<compose>, &counter, weftUint64, 0, comms[rank]) == weftSuccess);
        REQUIRE(weftAllReduce(&values[rank], &results[rank], 1, weftUint64, ops[rank], comms[rank], nullptr) ==
                weftSuccess);
    }
    REQUIRE(weftGroupEnd() == weftSuccess);
    const uint64_t expected = std::accumulate(values.begin() + 1, values.end(), values[0], compose);
    for (const uint64_t result : results) CHECK(result == expected);
    for (weftComm_t comm : comms) CHECK(weftCommDestroy(comm) == weftSuccess);
}

}  // namespace weft::internal::test
