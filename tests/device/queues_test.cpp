// queues_test.cpp: streams that share one hardware queue (meson.build): no event follows a launch until a communicator has a
// second stream, and kernels report their end themselves. Cases without [fake] run on real devices, too.
#include <cstring>
#include <functional>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

TEST_CASE("events follow the launches of a communicator from its second stream on", "[queues][fake]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000);
    const std::vector<uint32_t> ones(1000, 1), sums(1000, 32);
    for (const auto& buffer : buffers.all) buffer->write(ones.data(), 4000);
    std::vector<std::unique_ptr<Stream>> others;
    for (const int device : ranks.placing) others.push_back(std::make_unique<Stream>(device));
    const auto call = [&](int rank, const Stream& stream) {
        demand(weftAllReduce(buffers[rank], buffers[rank], 1000, weftUint32, weftSum, ranks.comms[size_t(rank)],
                             stream.weft()));
    };
    const auto records = [&] { return fake::calls("cuEventRecord"); };
    const int before = records();
    // Rank 0's kernels wait for those of rank 1.
    for (int round = 0; round < 2; ++round) call(0, *ranks.streams[0]);
    CHECK(records() == before);
    call(0, *others[0]);
    CHECK(records() == before + 2);  // behind the call before, and behind this one
    for (int round = 0; round < 2; ++round) call(0, *others[0]);
    CHECK(records() == before + 4);
    for (int round = 0; round < 3; ++round) call(1, *ranks.streams[1]);
    // Its calls have ended when its stream goes.
    ranks.streams[1]->finish();
    CHECK(records() == before + 4);
    {
        const Stream gone(ranks.placing[1]);
        call(1, gone);
        gone.finish();
    }
    call(1, *others[1]);
    for (const auto& stream : others) stream->finish();
    ranks.finish();
    ranks.check_healthy();
    for (const auto& buffer : buffers.all) CHECK(memcmp(buffer->read(4000).data(), sums.data(), 4000) == 0);
}

TEST_CASE("copy engines are not used, because their waits would hold up the hardware queue", "[queues][fake]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.blockPolicy = WEFT_BLOCK_POLICY_ZERO;
    const Ranks ranks(spread(2), &config);
    const RankBuffers from(ranks, 4000), to(ranks, 8000);
    const int before = fake::calls("cuLaunchKernelEx");
    ranks.group([&](int rank) {
        return weftAllGather(from[rank], to[rank], 1000, weftUint32, ranks.comms[size_t(rank)],
                             ranks.streams[size_t(rank)]->weft());
    });
    ranks.finish();
    CHECK(fake::calls("cuLaunchKernelEx") - before == 2);
    ranks.check_healthy();
}

namespace {

enum class CallKind { collective, messages, put };
enum class Asker { second_stream, deregistration, end };

// Rank's call of the kind on its stream.
weftResult_t call_of(CallKind kind, int rank, const Ranks& ranks, void* buffer, weftWindow_t window,
                     weftStream_t stream) {
    const weftComm_t comm = ranks.comms[size_t(rank)];
    if (kind == CallKind::collective) return weftAllReduce(buffer, buffer, 1000, weftUint32, weftSum, comm, stream);
    if (kind == CallKind::put)
        return weftPutSignal(buffer, 1000, weftUint8, 1 - rank, window, 0, 0, 0, 0, comm, stream);
    demand(weftSend(buffer, 1000, weftUint8, 1 - rank, comm, stream));
    return weftRecv(static_cast<char*>(buffer) + 1000, 1000, weftUint8, 1 - rank, comm, stream);
}

// The streams are destroyed when the calls have ended, then something asks for the end of the calls.
void destroy_and_ask(CallKind kind, Asker asker) {
    Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000), parts(ranks, 4000);
    std::vector<weftWindow_t> windows(2);
    std::vector<void*> handles(2);
    check_on_threads(2, [&](int rank) {
        const weftComm_t comm = ranks.comms[size_t(rank)];
        demand(weftCommWindowRegister(comm, parts[rank], 4000, &windows[size_t(rank)], WEFT_WIN_DEFAULT));
        demand(weftCommRegister(comm, buffers[rank], 4000, &handles[size_t(rank)]));
    });
    const auto call = [&] {
        ranks.group([&](int rank) {
            const weftStream_t stream = ranks.streams[size_t(rank)]->weft();
            return call_of(kind, rank, ranks, buffers[rank], windows[size_t(rank)], stream);
        });
        ranks.finish();
    };
    call();
    // Made first, so that they do not have the old handles.
    std::vector<std::unique_ptr<Stream>> others;
    for (const int device : ranks.placing) others.push_back(std::make_unique<Stream>(device));
    const int before = fake::uses_of_destroyed_streams();
    ranks.streams.swap(others);
    others.clear();
    if (asker == Asker::second_stream) call();
    check_on_threads(2, [&](int rank) {
        const weftComm_t comm = ranks.comms[size_t(rank)];
        if (asker == Asker::deregistration) demand(weftCommDeregister(comm, handles[size_t(rank)]));
        if (asker != Asker::end) demand(weftCommWindowDeregister(comm, windows[size_t(rank)]));
    });
    ranks.check_healthy();
    for (weftComm_t comm : ranks.comms) demand(weftCommDestroy(comm));
    ranks.comms.clear();
    CHECK(fake::uses_of_destroyed_streams() == before);
}

}  // namespace

TEST_CASE("a communicator's first stream may be destroyed when its calls have ended", "[queues]") {
    for (const CallKind kind : {CallKind::collective, CallKind::messages, CallKind::put})
        for (const Asker asker : {Asker::second_stream, Asker::deregistration, Asker::end}) {
            INFO("call " << int(kind) << ", asker " << int(asker));
            destroy_and_ask(kind, asker);
        }
}

namespace {

// Rank 0's first stream is captured after its call, and then rank 0 calls on another stream.
void call_during_capture(bool first_call_ended) {
    std::vector<std::unique_ptr<Stream>> others;
    CUgraph graph = nullptr;
    Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 4000);
    const auto call = [&](int rank, const Stream& stream) {
        return weftAllReduce(buffers[rank], buffers[rank], 1000, weftUint32, weftSum, ranks.comms[size_t(rank)],
                             stream.weft());
    };
    for (const int device : ranks.placing) others.push_back(std::make_unique<Stream>(device));
    // Its kernel waits for rank 1's.
    REQUIRE(call(0, *ranks.streams[0]) == weftSuccess);
    if (first_call_ended) {
        REQUIRE(call(1, *ranks.streams[1]) == weftSuccess);
        ranks.finish();
    }
    const Current current(ranks.placing[0]);
    demand(cuStreamBeginCapture(ranks.streams[0]->handle, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    if (first_call_ended) {
        for (const int rank : {0, 1}) CHECK(call(rank, *others[size_t(rank)]) == weftSuccess);
        for (const auto& stream : others) stream->finish();
    } else {
        CHECK_REFUSED(call(0, *others[0]), ranks.comms[0], "stream.capture");
    }
    for (weftComm_t comm : ranks.comms) demand(weftCommDestroy(comm));
    ranks.comms.clear();
    demand(cuStreamEndCapture(ranks.streams[0]->handle, &graph));
    demand(cuGraphDestroy(graph));
}

}  // namespace

TEST_CASE("a call on another stream is refused if the first one is captured while its call runs", "[queues]") {
    call_during_capture(false);
    // Its memory is given back when another communicator ends after the capture.
    CHECK(eventually([] {
        { const Ranks ranks(spread(1)); }
        return fake::leaks().find("cuMemAlloc") == std::string::npos;
    }));
}

TEST_CASE("a call on another stream needs no event behind a call that has ended, so a capture does not matter",
          "[queues]") {
    call_during_capture(true);
}

}  // namespace weft::internal::test
