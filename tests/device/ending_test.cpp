// ending_test.cpp: communicators with calls on device memory that are finalized, or shrunk to fewer ranks.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t count = 1000;

// Each rank's own, all of one value.
struct Values {
    Values(const Ranks& of, int value) : ranks(of), buffers(of, count * sizeof(int)) {
        const std::vector<int> values(count, value);
        for (const auto& buffer : buffers.all) buffer->write(values.data(), count * sizeof(int));
    }
    weftResult_t sum(int rank, weftComm_t comm) const {
        return weftAllReduce(buffers[rank], buffers[rank], count, weftInt32, weftSum, comm,
                             ranks.streams[size_t(rank)]->weft());
    }
    bool are(int rank, int value) const {
        const std::vector<int> values(count, value);
        return memcmp(buffers.all[size_t(rank)]->read(count * sizeof(int)).data(), values.data(),
                      count * sizeof(int)) == 0;
    }
    const Ranks& ranks;
    RankBuffers buffers;
};

// All but the last rank shrink to themselves, one thread for all.
std::vector<weftComm_t> without_last(const Ranks& ranks, int flags) {
    int last = ranks.count() - 1;
    std::vector<weftComm_t> children(size_t(last), nullptr);
    demand(weftGroupStart());
    for (int rank = 0; rank < last; ++rank)
        demand(weftCommShrink(ranks.comms[size_t(rank)], &last, 1, &children[size_t(rank)], nullptr, flags));
    demand(weftGroupEnd());
    return children;
}

}  // namespace

TEST_CASE("weftCommFinalize waits for a rank's calls on device memory, and later calls are refused", "[ending]") {
    const Ranks ranks(spread(3));
    const Values values(ranks, 1);
    struct Seen {
        weftResult_t called, finalized, again, called_again;
        bool done;
    };
    std::vector<Seen> seen(3);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
        threads.emplace_back([&, rank] {
            Seen& own = seen[size_t(rank)];
            weftComm_t const comm = ranks.comms[size_t(rank)];
            if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
            own.called = values.sum(rank, comm);
            own.finalized = weftCommFinalize(comm);
            const Current current(ranks.streams[size_t(rank)]->device);
            own.done = cuStreamQuery(ranks.streams[size_t(rank)]->handle) == CUDA_SUCCESS;
            own.called_again = values.sum(rank, comm);
            own.again = weftCommFinalize(comm);
        });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < 3; ++rank) {
        CAPTURE(rank);
        const Seen& own = seen[size_t(rank)];
        CHECK(own.called == weftSuccess);
        CHECK(own.finalized == weftSuccess);
        CHECK(own.done);
        CHECK(own.called_again == weftInvalidUsage);
        CHECK(own.again == weftInvalidUsage);
        CHECK_THAT(weftGetLastError(ranks.comms[size_t(rank)]), Catch::Contains("was finalized"));
        CHECK(values.are(rank, 3));
    }
}

TEST_CASE("a communicator with calls on device memory is shrunk, and lives on", "[ending]") {
    const Ranks ranks(spread(3));
    const Values values(ranks, 1);
    ranks.group([&](int rank) { return values.sum(rank, ranks.comms[size_t(rank)]); });
    const std::vector<weftComm_t> children = without_last(ranks, WEFT_SHRINK_DEFAULT);
    demand(weftGroupStart());
    for (int rank = 0; rank < 2; ++rank) demand(values.sum(rank, children[size_t(rank)]));
    demand(weftGroupEnd());
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(values.are(rank, rank < 2 ? 6 : 3));
    ranks.group([&](int rank) { return values.sum(rank, ranks.comms[size_t(rank)]); });
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(values.are(rank, 15));
    for (weftComm_t child : children) demand(weftCommDestroy(child));
}

TEST_CASE("kernels that wait for a rank that does not come end when the others shrink without it", "[ending]") {
    const Ranks ranks(spread(3));
    Values values(ranks, 1);
    for (int rank = 0; rank < 2; ++rank) CHECK(values.sum(rank, ranks.comms[size_t(rank)]) == weftSuccess);
    const std::vector<weftComm_t> children = without_last(ranks, WEFT_SHRINK_ABORT);
    ranks.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftRemoteError);
    CHECK(values.sum(2, ranks.comms[2]) == weftRemoteError);
    const Values fresh(ranks, 4);
    demand(weftGroupStart());
    for (int rank = 0; rank < 2; ++rank) demand(fresh.sum(rank, children[size_t(rank)]));
    demand(weftGroupEnd());
    ranks.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(fresh.are(rank, 8));
    for (weftComm_t child : children) demand(weftCommDestroy(child));
}

TEST_CASE("a reduction of the user's does not take device memory, and says so", "[ending]") {
    const Ranks ranks(spread(1));
    const Values values(ranks, 1);
    weftRedOp_t op;
    const auto nothing = [](const void*, const void*, void*, size_t, weftDataType_t, void*) {};
    demand(weftRedOpCreate(&op, nothing, nullptr, weftInt32, 1, ranks.comms[0]));
    void* const data = values.buffers[0];
    CHECK(weftAllReduce(data, data, count, weftInt32, op, ranks.comms[0], ranks.streams[0]->weft()) ==
          weftInvalidArgument);
    demand(weftRedOpDestroy(op, ranks.comms[0]));
}

}  // namespace weft::internal::test
