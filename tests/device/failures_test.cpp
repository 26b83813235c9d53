// failures_test.cpp: calls on device memory of ranks that call different things, are late, abort, or lack a resource.
// Every rank gets an error, and the process lives.
#include <cstring>
#include <future>
#include <thread>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

weftResult_t reduce(const Ranks& ranks, const RankBuffers& buffers, int rank, size_t count) {
    return weftAllReduce(buffers[rank], buffers[rank], count, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                         ranks.streams[size_t(rank)]->weft());
}

// In turn: fused kernels; steps over connections, without other blocks of the rank and with them.
const char* algorithm() { return GENERATE(as<const char*>(), nullptr, "ring", "double_binary_tree"); }

void check_works() {
    std::mt19937 random(5);
    const Ranks ranks(spread(2));
    CHECK(compare(ranks, {weftInt32, weftSum, 3000, false, 0}, random) == "");
}

// Not of this thread, which is the one that is held to it.
struct CaptureElsewhere {
    explicit CaptureElsewhere(int device) : stream(device) {
        std::thread([&] {
            const Current current(stream.device);
            demand(cuStreamBeginCapture(stream.handle, CU_STREAM_CAPTURE_MODE_GLOBAL));
            begun.set_value();
            over.get_future().wait();
            CUgraph graph = nullptr;
            ended.set_value(cuStreamEndCapture(stream.handle, &graph));
            cuGraphDestroy(graph);
        }).swap(thread);
        begun.get_future().wait();
    }
    CUresult end() {
        over.set_value();
        thread.join();
        return ended.get_future().get();
    }
    Stream stream;
    std::promise<void> begun, over;
    std::promise<CUresult> ended;
    std::thread thread;
};

}  // namespace

TEST_CASE("different calls on device memory are an error that names each", "[failures]") {
    // By one kernel, and by two that share nothing but the barrier words.
    struct {
        size_t most_call, rank_1_calls;
    } const cases[] = {{100, 101}, {100, 30'000}, {200'000, 300'000}};
    const weftConfig_t config = with_algo(algorithm());
    for (const auto& each : cases) {
        const Ranks ranks(spread(3), &config);
        const RankBuffers buffers(ranks, 1'200'000);
        ranks.differing_group(
            [&](int rank) { return reduce(ranks, buffers, rank, rank == 1 ? each.rank_1_calls : each.most_call); });
        ranks.finish();
        for (int rank = 0; rank < 3; ++rank) {
            CHECK(ranks.await_failure(rank) == weftMismatch);
            CHECK_THAT(weftGetLastError(ranks.comms[size_t(rank)]), Catch::Contains("rank 1 called all_reduce of "));
            CHECK_REFUSED(reduce(ranks, buffers, rank, each.most_call), ranks.comms[size_t(rank)], "mismatch.count");
            CHECK_THAT(weftGetLastError(ranks.comms[size_t(rank)]),
                       Catch::Contains("rank 1 called all_reduce of " + std::to_string(each.rank_1_calls) +
                                       " float, sum, in device memory"));
        }
    }
    check_works();
}

TEST_CASE("calls that exchange no message with each other still mismatch", "[failures]") {
    // Algorithms for short and for long messages.
    const weftConfig_t config = with_algo("^one_shot,^two_shot");
    const Ranks ranks(spread(17), &config);
    const RankBuffers buffers(ranks, 2'000'000);
    ranks.differing_group([&](int rank) { return reduce(ranks, buffers, rank, rank == 1 ? 10 : 500'000); });
    ranks.finish();
    for (int rank = 0; rank < 17; ++rank) CHECK(ranks.await_failure(rank) == weftMismatch);
    CHECK_REFUSED(reduce(ranks, buffers, 0, 10), ranks.comms[0], "mismatch.count");
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("rank 1 called all_reduce of 10 float"));
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("called all_reduce of 500000 float"));
}

TEST_CASE("programs that cannot be copied to a device leave the way through host memory", "[joining][fake]") {
    // The first copies are of what proves that ranks reach each other.
    fake::add_setting("fault cuMemcpyAsync 3 2");
    std::mt19937 random(5);
    const weftConfig_t config = with_algo("ring");
    const Ranks ranks(spread(2), &config);
    CHECK(compare(ranks, {weftInt32, weftSum, 3000, false, 0}, random) == "");
    char text[8000];
    demand(weftCommExplain(ranks.comms[0], 3000, weftInt32, weftSum, text, sizeof text, nullptr));
    CHECK_THAT(text, Catch::Contains("in device memory: ring, ") && Catch::Contains("through host memory"));
}

TEST_CASE("communicators come and go while another thread captures, and have their devices", "[joining]") {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (const int device : spread(2)) buffers.push_back(std::make_unique<DeviceBuffer>(device, 4000));
    const auto sum = [&](const Ranks& ranks) {
        ranks.group([&](int rank) {
            void* const buffer = buffers[size_t(rank)]->data();
            return weftAllReduce(buffer, buffer, 1000, weftInt32, weftSum, ranks.comms[size_t(rank)],
                                 ranks.streams[size_t(rank)]->weft());
        });
        ranks.finish();
    };
    const std::vector<int> ones(1000, 1), eights(1000, 8);
    for (const auto& buffer : buffers) buffer->write(ones.data(), 4000);
    {
        CaptureElsewhere capture(0);
        sum(Ranks(spread(2)));  // the first of its devices, and the last
        {
            const Ranks outer(spread(2));
            sum(Ranks(spread(2)));
            sum(outer);
        }
        CHECK(capture.end() == CUDA_SUCCESS);
    }
    for (const auto& buffer : buffers) CHECK(memcmp(buffer->read(4000).data(), eights.data(), 4000) == 0);
}

TEST_CASE("a communicator that is split off while the stream is captured serves it", "[joining]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000);
    std::vector<weftComm_t> children(2);
    {
        const Captured captured(ranks, [&] {
            ranks.group([&](int rank) {
                return weftCommSplit(ranks.comms[size_t(rank)], 0, rank, &children[size_t(rank)], nullptr);
            });
            ranks.group([&](int rank) {
                return weftAllReduce(buffers[rank], buffers[rank], 1000, weftInt32, weftSum, children[size_t(rank)],
                                     ranks.streams[size_t(rank)]->weft());
            });
        });
        const std::vector<int> ones(1000, 1), twos(1000, 2);
        for (const auto& buffer : buffers.all) buffer->write(ones.data(), 4000);
        captured.launch();
        ranks.finish();
        for (const auto& buffer : buffers.all) CHECK(memcmp(buffer->read(4000).data(), twos.data(), 4000) == 0);
    }
    for (weftComm_t child : children) demand(weftCommDestroy(child));
}

TEST_CASE("device memory on one rank and host memory on another is a mismatch that says so", "[failures]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000);
    std::vector<float> host(1000);
    CHECK(reduce(ranks, buffers, 0, 1000) == weftSuccess);
    CHECK_REFUSED(weftAllReduce(host.data(), host.data(), 1000, weftFloat32, weftSum, ranks.comms[1], nullptr),
                  ranks.comms[1], "mismatch.call");
    CHECK_THAT(weftGetLastError(ranks.comms[1]), Catch::Contains("in device memory"));
    ranks.finish();
    CHECK(ranks.await_failure(0) == weftMismatch);
}

TEST_CASE("a rank that does not come is named at the deadline", "[failures]") {
    weftConfig_t config = with_algo(algorithm());
    config.timeoutMs = 100;
    for (const size_t count : {100, 30'000, 300'000}) {
        const Ranks ranks(spread(2), &config);
        const RankBuffers buffers(ranks, 1'200'000);
        CHECK(reduce(ranks, buffers, 0, count) == weftSuccess);
        ranks.finish();
        for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftTimeout);
        CHECK_REFUSED(reduce(ranks, buffers, 0, count), ranks.comms[0], "timeout.collective", 1, 0);
        // Late, and nothing else.
        CHECK_THAT(weftGetLastError(ranks.comms[0]),
                   Catch::Contains("has not called anything yet") && !Catch::Contains("it has made this call"));
    }
    check_works();
}

TEST_CASE("a call that was captured on one rank only is named at the deadline", "[failures]") {
    weftConfig_t config = with_algo(algorithm());
    config.timeoutMs = 100;
    const Ranks ranks(spread(2), &config);
    const RankBuffers buffers(ranks, 4000);
    const CUstream stream = ranks.streams[0]->handle;
    CUgraph graph = nullptr;
    {
        const Current current(ranks.placing[0]);
        demand(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        CHECK(reduce(ranks, buffers, 0, 100) == weftSuccess);
        demand(cuStreamEndCapture(stream, &graph));
        demand(cuGraphDestroy(graph));
    }
    CHECK(reduce(ranks, buffers, 1, 100) == weftSuccess);
    ranks.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftTimeout);
    CHECK_REFUSED(reduce(ranks, buffers, 1, 100), ranks.comms[1], "timeout.collective", 0, 1);
    CHECK_THAT(weftGetLastError(ranks.comms[1]), Catch::Contains("for rank 0 in all_reduce of 100 float"));
    check_works();
}

TEST_CASE("a rank that leaves is named by those whose kernels wait for it", "[failures]") {
    const weftConfig_t config = with_algo(algorithm());
    Ranks ranks(spread(3), &config);
    const RankBuffers buffers(ranks, 4000);
    ranks.group([&](int rank) { return reduce(ranks, buffers, rank, 1000); });
    demand(weftCommDestroy(ranks.comms[2]));
    ranks.comms.pop_back();
    for (int rank = 0; rank < 2; ++rank) CHECK(reduce(ranks, buffers, rank, 1000) == weftSuccess);
    ranks.finish();
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftRemoteError);
    CHECK_REFUSED(reduce(ranks, buffers, 0, 1000), ranks.comms[0], "rank.left");
}

TEST_CASE("weftCommAbort ends kernels that wait, on every rank", "[failures]") {
    const weftConfig_t config = with_algo(algorithm());
    for (const size_t count : {100, 30'000, 300'000}) {
        const Ranks ranks(spread(3), &config);
        const RankBuffers buffers(ranks, 1'200'000);
        for (int rank = 0; rank < 2; ++rank) CHECK(reduce(ranks, buffers, rank, count) == weftSuccess);
        std::thread aborting([&] { CHECK(weftCommAbort(ranks.comms[0]) == weftSuccess); });
        ranks.finish();
        aborting.join();
        for (int rank = 1; rank < 3; ++rank) CHECK(ranks.await_failure(rank) == weftRemoteError);
        CHECK_REFUSED(reduce(ranks, buffers, 2, count), ranks.comms[2], "abort.remote");
    }
    check_works();
}

TEST_CASE("weftCommDestroy waits for calls that are under way", "[failures]") {
    const weftConfig_t config = with_algo(algorithm());
    std::vector<uint32_t> ones(5000, 1);
    for (int round = 0; round < (small() ? 3 : 10); ++round) {
        auto ranks = std::make_unique<Ranks>(spread(3), &config);
        const RankBuffers buffers(*ranks, 20'000);
        for (const auto& buffer : buffers.all) buffer->write(ones.data(), 20'000);
        for (int call = 0; call < 5; ++call)
            ranks->group([&](int rank) {
                return weftAllReduce(buffers[rank], buffers[rank], 5000, weftUint32, weftSum,
                                     ranks->comms[size_t(rank)], ranks->streams[size_t(rank)]->weft());
            });
        ranks.reset();
        for (const auto& buffer : buffers.all) {
            const Bytes got = buffer->read(20'000);
            const std::vector<uint32_t> expected(5000, 243);
            CHECK(memcmp(got.data(), expected.data(), 20'000) == 0);
        }
    }
}

TEST_CASE("a launch that fails is an error on every rank", "[failures][fake]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000);
    CHECK(reduce(ranks, buffers, 0, 100) == weftSuccess);
    fake::add_setting("fault cuLaunchKernelEx 1 719");
    CHECK_REFUSED(reduce(ranks, buffers, 1, 100), ranks.comms[1], "cuda.call");
    ranks.finish();
    CHECK(ranks.await_failure(0) == weftUnhandledCudaError);
}

TEST_CASE("whatever prevents kernels on one rank, all ranks work on copies", "[joining][fake]") {
    struct {
        const char *fault, *why;
    } const cases[] = {
        {"fault cuMemAlloc 2 2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"fault cuMemHostRegister 1 801", "CUDA_ERROR_NOT_SUPPORTED"},
        {"fault cuMemHostAlloc 1 2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"fault cuLaunchKernelEx 2 719; fault cuLaunchKernelEx 5 719", "and through host memory: rank "},
        {"fault cuStreamCreateWithPriority 3 2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"fault cuEventCreate 1 2", "CUDA_ERROR_OUT_OF_MEMORY"},
        {"fault cuMemHostGetDevicePointer 1 801", "CUDA_ERROR_NOT_SUPPORTED"},
        {"fault cuCtxEnablePeerAccess 1 217; fault cuMemHostRegister 2 801", "and through host memory: "},
        {"fault cuMemsetD8Async 1 700", "CUDA_ERROR_ILLEGAL_ADDRESS"}};
    std::mt19937 random(8);
    for (const auto& each : cases) {
        INFO(each.fault);
        if (devices() == 1 && contains(each.fault, "PeerAccess")) continue;
        fake::add_setting(each.fault);
        const Ranks ranks(spread(2));
        for (weftComm_t comm : ranks.comms) {
            char text[8000];
            demand(weftCommExplain(comm, 100, weftInt32, weftSum, text, sizeof text, nullptr));
            CHECK_THAT(text, Catch::Contains("on copies in the host's memory, because ") && Catch::Contains(each.why));
        }
        for (const size_t count : {100, 300'000})
            CHECK(compare(ranks, {weftInt32, weftSum, count, false, 0}, random) == "");
        std::vector<float> host(100, 1);
        ranks.group([&](int rank) {
            return weftAllReduce(host.data() + 50 * rank, host.data() + 50 * rank, 50, weftFloat32, weftSum,
                                 ranks.comms[size_t(rank)], nullptr);
        });
        CHECK(host[0] == 2);
    }
    check_works();
}

TEST_CASE("copies of a failed join are done before its memory goes, at any failing copy", "[joining][fake]") {
    for (int copy = 1; copy <= 4; ++copy) {
        INFO(copy);
        fake::add_setting("fault cuMemcpyAsync " + std::to_string(copy) + " 999");
        const int early = fake::streams_destroyed_early();
        { const Ranks ranks(spread(2)); }
        CHECK(fake::streams_destroyed_early() == early);
    }
    check_works();
}

TEST_CASE("kernels that cannot be loaded on one rank make all ranks work on copies", "[joining][fake]") {
    // It is looked for in each of the libraries of communicators.
    constexpr int libraries = 8;
    for (int i = 1; i <= libraries; ++i) fake::add_setting("fault cuLibraryGetKernel " + std::to_string(i) + " 500");
    {
        const Ranks ranks(spread(2));
        std::mt19937 random(7);
        for (const size_t count : {0, 100, 300'000})
            CHECK(compare(ranks, {weftInt32, weftSum, count, count == 100, 0}, random) == "");
        for (weftComm_t comm : ranks.comms) {
            char text[8000];
            demand(weftCommExplain(comm, 100, weftInt32, weftSum, text, sizeof text, nullptr));
            CHECK_THAT(text, Catch::Contains("in device memory: the same, on copies in the host's memory"));
            uint64_t bytes = 0;
            demand(weftCommMemStats(comm, weftMemHeap, &bytes));
            CHECK(bytes >= 2'400'000);  // both buffers of the longest call
        }
    }
    check_works();
}

}  // namespace weft::internal::test
