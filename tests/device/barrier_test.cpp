// barrier_test.cpp: barriers in CUDA streams, and calls of no elements, in which all ranks synchronise as in any other.
// Tested with fused kernels, with steps among ranks that map each other's flags, and over connections alone.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"

namespace weft::internal::test {

namespace {

bool finished(const Stream& stream) {
    const Current current(stream.device);
    const CUresult state = cuStreamQuery(stream.handle);
    if (state != CUDA_ERROR_NOT_READY) demand(state);
    return state == CUDA_SUCCESS;
}

weftResult_t barrier(const Ranks& ranks, int rank) {
    return weftBarrier(ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
}

weftResult_t reduce_nothing(const Ranks& ranks, int rank, weftDataType_t type = weftFloat32) {
    return weftAllReduce(nullptr, nullptr, 0, type, weftSum, ranks.comms[size_t(rank)],
                         ranks.streams[size_t(rank)]->weft());
}

const char* algorithm() { return GENERATE(as<const char*>(), nullptr, "ring", "double_binary_tree"); }

// More than know each other's words, too, where a device of 17 kernels would not be too small for each one's blocks.
int rank_count() { return small() ? GENERATE(1, 3) : GENERATE(1, 2, 5, devices() > 1 ? 17 : 7); }

// No stream is through before the last rank has called.
template <class Call>
void check_meets(const Ranks& ranks, Call&& call) {
    for (int late = 0; late < ranks.count(); late += std::max(1, ranks.count() / 3)) {
        for (int rank = 0; rank < ranks.count(); ++rank)
            if (rank != late) demand(call(rank), ranks.comms[size_t(rank)]);
        for (int look = 0; look < 20 && ranks.count() > 1; ++look) {
            usleep(200);
            for (int rank = 0; rank < ranks.count(); ++rank)
                if (rank != late) CHECK(!finished(*ranks.streams[size_t(rank)]));
        }
        demand(call(late), ranks.comms[size_t(late)]);
        ranks.finish();
        ranks.check_healthy();
    }
}

}  // namespace

TEST_CASE("a barrier in CUDA streams ends when every rank's stream has come to it", "[barrier]") {
    const weftConfig_t config = with_algo(algorithm());
    const Ranks ranks(spread(rank_count()), &config);
    for (int round = 0; round < 2; ++round) check_meets(ranks, [&](int rank) { return barrier(ranks, rank); });
    // In a group, and one behind the other.
    for (int round = 0; round < 3; ++round) ranks.group([&](int rank) { return barrier(ranks, rank); });
    ranks.finish();
    ranks.check_healthy();
}

TEST_CASE("all-reduces of no elements synchronise all ranks", "[barrier]") {
    const weftConfig_t config = with_algo(algorithm());
    const Ranks ranks(spread(rank_count()), &config);
    for (const weftDataType_t type : {weftFloat32, weftUint8})
        check_meets(ranks, [&](int rank) { return reduce_nothing(ranks, rank, type); });
}

TEST_CASE("a barrier stands in the order of its stream and of the communicator's calls", "[barrier]") {
    const weftConfig_t config = with_algo(algorithm());
    const Ranks ranks(spread(3), &config);
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    const uint32_t one = 1;
    for (const int device : ranks.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, sizeof one));
        buffers.back()->write(&one, sizeof one);
    }
    const auto sum = [&](int rank) {
        void* const at = buffers[size_t(rank)]->data();
        return weftAllReduce(at, at, 1, weftUint32, weftSum, ranks.comms[size_t(rank)],
                             ranks.streams[size_t(rank)]->weft());
    };
    for (int round = 0; round < 3; ++round) {
        ranks.group(sum);
        ranks.group([&](int rank) { return barrier(ranks, rank); });
    }
    const Captured graph(ranks, [&] {
        ranks.group([&](int rank) { return barrier(ranks, rank); });
        ranks.group(sum);
    });
    for (int replay = 0; replay < 2; ++replay) graph.launch();
    ranks.finish();
    ranks.check_healthy();
    for (const auto& buffer : buffers) {
        uint32_t value = 0;
        memcpy(&value, buffer->read(sizeof value).data(), sizeof value);
        CHECK(value == 243);
    }
}

// Whether kernels serve it or the host, on copies; there it has ended when it returns.
TEST_CASE("work before a barrier in any rank's stream is done after the barrier in every stream", "[barrier][copies]") {
    const Ranks ranks(spread(3));
    std::atomic<int> come = 0;
    const auto call = [&](int rank) {
        const Stream& stream = *ranks.streams[size_t(rank)];
        const Current current(stream.device);
        const auto arrive = [](void* counter) { ++*static_cast<std::atomic<int>*>(counter); };
        demand(cuLaunchHostFunc(stream.handle, arrive, &come));
        return barrier(ranks, rank);
    };
    ranks.group(call);
    for (const auto& stream : ranks.streams) {
        stream->finish();
        CHECK(come == 3);
    }
    std::atomic<int> early = 0;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
        threads.emplace_back([&, rank] {
            for (int round = 2; round < 20; ++round) {
                early += call(rank) != weftSuccess;
                ranks.streams[size_t(rank)]->finish();
                early += come < 3 * round;
            }
        });
    for (std::thread& thread : threads) thread.join();
    CHECK(early == 0);
    ranks.check_healthy();
}

TEST_CASE("every collective of no elements is carried out, among others with elements", "[barrier][copies]") {
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "^one_shot,^two_shot"));
    const Ranks ranks(spread(rank_count()), &config);
    std::mt19937 random(seed());
    const int root = ranks.count() - 1;
    for (int round = 0; round < 2; ++round) {
        const auto each = [&](auto&& call) {
            ranks.group([&](int rank) { return call(ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft()); });
        };
        each([&](auto comm, auto on) { return weftBroadcast(nullptr, nullptr, 0, weftInt8, root, comm, on); });
        each([&](auto comm, auto on) { return weftReduce(nullptr, nullptr, 0, weftInt64, weftMax, 0, comm, on); });
        each([&](auto comm, auto on) { return weftAllGather(nullptr, nullptr, 0, weftFloat64, comm, on); });
        each([&](auto comm, auto on) { return weftReduceScatter(nullptr, nullptr, 0, weftInt32, weftSum, comm, on); });
        each([&](auto comm, auto on) { return weftAlltoAll(nullptr, nullptr, 0, weftBfloat16, comm, on); });
        each([&](auto comm, auto on) { return weftGather(nullptr, nullptr, 0, weftUint8, root, comm, on); });
        each([&](auto comm, auto on) { return weftScatter(nullptr, nullptr, 0, weftUint8, 0, comm, on); });
        CHECK(compare(ranks, {weftFloat32, weftSum, 700, false, 0}, random) == "");
    }
    ranks.finish();
    ranks.check_healthy();
}

TEST_CASE("a barrier against another call is an error that names both", "[barrier]") {
    const weftConfig_t config = with_algo(algorithm());
    const Ranks ranks(spread(3), &config);
    ranks.differing_group([&](int rank) { return rank == 1 ? reduce_nothing(ranks, rank) : barrier(ranks, rank); });
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(ranks.await_failure(rank) == weftMismatch);
    CHECK_REFUSED(barrier(ranks, 0), ranks.comms[0], "mismatch.call");
    CHECK_THAT(weftGetLastError(ranks.comms[0]),
               Catch::Contains("rank 1 called all_reduce of 0 float, sum, in device"));
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("called barrier of CUDA streams"));
}

TEST_CASE("different types in calls of no elements are a mismatch", "[barrier]") {
    const weftConfig_t config = with_algo(algorithm());
    const Ranks ranks(spread(3), &config);
    ranks.differing_group([&](int rank) { return reduce_nothing(ranks, rank, rank == 2 ? weftInt8 : weftFloat32); });
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(ranks.await_failure(rank) == weftMismatch);
    CHECK_REFUSED(barrier(ranks, 1), ranks.comms[1], "mismatch.datatype");
    CHECK_THAT(weftGetLastError(ranks.comms[1]), Catch::Contains("rank 2 called all_reduce of 0 int8, sum"));
}

TEST_CASE("a barrier of the host and one of CUDA streams are different calls", "[barrier]") {
    const Ranks ranks(spread(2));
    CHECK(barrier(ranks, 0) == weftSuccess);
    CHECK_REFUSED(weftBarrier(ranks.comms[1], nullptr), ranks.comms[1], "mismatch.call");
    CHECK_THAT(weftGetLastError(ranks.comms[1]), Catch::Contains("rank 0 called barrier of CUDA streams"));
    ranks.finish();
    CHECK(ranks.await_failure(0) == weftMismatch);
}

TEST_CASE("a barrier that a rank does not come to ends at the deadline", "[barrier]") {
    weftConfig_t config = with_algo(algorithm());
    config.timeoutMs = 100;
    const Ranks ranks(spread(2), &config);
    CHECK(barrier(ranks, 0) == weftSuccess);
    ranks.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftTimeout);
    CHECK_REFUSED(barrier(ranks, 0), ranks.comms[0], "timeout.collective", 1, 0);
}

TEST_CASE("a barrier in a captured stream is refused where the host serves it", "[copies]") {
    if (!on_copies()) return;
    const Ranks ranks(spread(1));
    const Current current(0);
    demand(cuStreamBeginCapture(ranks.streams[0]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CHECK_REFUSED(barrier(ranks, 0), ranks.comms[0], "stream.capture");
    CUgraph graph;
    demand(cuStreamEndCapture(ranks.streams[0]->handle, &graph));
    demand(cuGraphDestroy(graph));
    CHECK(barrier(ranks, 0) == weftSuccess);
}

TEST_CASE("a barrier in a CUDA stream is refused where no device serves it", "[barrier]") {
    demand(cuCtxSetCurrent(nullptr));
    weftComm_t comm = nullptr;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    demand(weftCommInitRank(&comm, 1, id, 0));
    const Stream stream(0);
    CHECK_REFUSED(weftBarrier(comm, stream.weft()), comm, "gpu.unavailable");
    CHECK(weftBarrier(comm, nullptr) == weftSuccess);
    demand(weftCommDestroy(comm));
    // The stream of another device.
    const Ranks ranks(spread(2));
    if (devices() == 1) return;
    CHECK_REFUSED(weftBarrier(ranks.comms[0], ranks.streams[1]->weft()), ranks.comms[0], "memory.device");
}

}  // namespace weft::internal::test
