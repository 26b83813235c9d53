// message_failures_test.cpp: messages on device memory without a counterpart, with a wrong one, or whose ranks have
// ended.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

namespace {

struct Pair {
    explicit Pair(int64_t timeout_ms = 0, size_t bytes = 2'000'000) : config(WEFT_CONFIG_INITIALIZER) {
        if (timeout_ms > 0) config.timeoutMs = int(timeout_ms);
        ranks = std::make_unique<Ranks>(spread(3), &config);
        for (const int device : ranks->placing) buffers.push_back(std::make_unique<DeviceBuffer>(device, bytes));
    }
    void* buffer(int rank) const { return buffers[size_t(rank)]->data(); }
    weftComm_t comm(int rank) const { return ranks->comms[size_t(rank)]; }
    weftStream_t stream(int rank) const { return ranks->streams[size_t(rank)]->weft(); }
    weftResult_t send(int rank, int to, size_t count, weftDataType_t type = weftFloat32) const {
        return weftSend(buffer(rank), count, type, to, comm(rank), stream(rank));
    }
    weftResult_t receive(int rank, int from, size_t count, weftDataType_t type = weftFloat32) const {
        return weftRecv(buffer(rank), count, type, from, comm(rank), stream(rank));
    }
    weftConfig_t config;
    std::unique_ptr<Ranks> ranks;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
};

}  // namespace

TEST_CASE("messages whose ends differ in count or type are errors of both", "[messages]") {
    struct {
        size_t sent, received;
        weftDataType_t type;
        const char* text;
    } const cases[] = {{10, 11, weftFloat32,
                        "rank 0 called weftSend with 10 float for rank 1, which called weftRecv "
                        "with 11 float from rank 0"},
                       {10, 10, weftInt32, "with 10 float for rank 1, which called weftRecv with 10 int32 from rank 0"},
                       {10, 400'000, weftFloat32, "with 10 float for rank 1, which called weftRecv with 400000 float"},
                       {400'000, 10, weftFloat32, "with 400000 float for rank 1, which called weftRecv with 10 float"},
                       {0, 10, weftFloat32, "with 0 float for rank 1, which called weftRecv with 10 float"}};
    for (const auto& each : cases) {
        const Pair pair;
        CHECK(pair.send(0, 1, each.sent) == weftSuccess);
        CHECK(pair.receive(1, 0, each.received, each.type) == weftSuccess);
        pair.ranks->finish();
        for (int rank = 0; rank < 3; ++rank) {
            CHECK(pair.ranks->await_failure(rank) == weftMismatch);
            CHECK_REFUSED(pair.send(rank, (rank + 1) % 3, 1), pair.comm(rank), "mismatch.message");
            CHECK_THAT(weftGetLastError(pair.comm(rank)), Catch::Contains(each.text));
        }
    }
}

TEST_CASE("different counts of one part, and different calls, are errors of both ranks", "[messages]") {
    {
        const Pair pair;
        const size_t places[3] = {0, 100, 200}, counts[3] = {1, 2, 3}, others[3] = {2, 2, 3};
        pair.ranks->group([&](int rank) {
            const size_t all[3] = {counts[rank], counts[rank], counts[rank]};
            auto* const receive = static_cast<std::byte*>(pair.buffer(rank)) + 4000;
            return weftAlltoAllv(pair.buffer(rank), all, places, receive, rank == 2 ? others : counts, places, weftInt8,
                                 pair.comm(rank), pair.stream(rank));
        });
        pair.ranks->finish();
        for (int rank = 0; rank < 3; ++rank) CHECK(pair.ranks->await_failure(rank) == weftMismatch);
        CHECK_REFUSED(pair.send(1, 0, 1), pair.comm(1), "mismatch.message");
        CHECK_THAT(weftGetLastError(pair.comm(1)),
                   Catch::Contains(
                       "rank 0 called weftAlltoAllv with 1 int8 for rank 2, which called weftAlltoAllv with 2 int8"));
    }
    {
        const Pair pair;
        const size_t places[3] = {0, 100, 200}, counts[3] = {1, 1, 1};
        pair.ranks->differing_group([&](int rank) {
            auto* const receive = static_cast<std::byte*>(pair.buffer(rank)) + 4000;
            return rank == 1 ? weftAllReduce(pair.buffer(1), pair.buffer(1), 5, weftInt32, weftSum, pair.comm(1),
                                             pair.stream(1))
                             : weftAlltoAllv(pair.buffer(rank), counts, places, receive, counts, places, weftInt8,
                                             pair.comm(rank), pair.stream(rank));
        });
        pair.ranks->finish();
        for (int rank = 0; rank < 3; ++rank) CHECK(pair.ranks->await_failure(rank) == weftMismatch);
        CHECK_REFUSED(pair.send(1, 0, 1), pair.comm(1), "mismatch.call");
        CHECK_THAT(weftGetLastError(pair.comm(1)),
                   Catch::Contains("rank 1 called all_reduce of 5 int32, sum, in device memory"));
    }
}

TEST_CASE("a message without a counterpart fails at the deadline and names the missing rank", "[messages]") {
    // More than the slots between the two hold, or between hosts the network's sockets.
    const size_t count = getenv("WEFT_TRANSPORTS") ? 20'000'000 : 1'200'000;
    for (const bool sends : {false, true}) {
        const Pair pair(sends ? 1000 : 100, count * 4);
        CHECK((sends ? pair.send(0, 1, count) : pair.receive(0, 1, 7)) == weftSuccess);
        pair.ranks->finish();
        for (int rank = 0; rank < 3; ++rank) CHECK(pair.ranks->await_failure(rank) == weftTimeout);
        CHECK_REFUSED(pair.receive(0, 1, 1), pair.comm(0), "timeout.message", 1, 0);
        CHECK_THAT(
            weftGetLastError(pair.comm(0)),
            Catch::Contains(
                sends ? "weftRecv from rank 0 for the " + std::to_string(count) + " float that rank 0 sends by weftSend"
                      : "has not called weftSend to rank 0 of the 7 float that rank 0 called weftRecv for"));
    }
}

TEST_CASE("ranks that wait for messages of a rank that left name it, and others may leave", "[messages]") {
    Pair pair;
    const uint32_t value = 41;
    pair.buffers[1]->write(&value, 4);
    // A message that rank 1 sent before it left arrives; then rank 1 has no more.
    CHECK(pair.send(1, 0, 1) == weftSuccess);
    demand(weftCommDestroy(pair.ranks->comms[1]));
    CHECK(pair.receive(0, 1, 1) == weftSuccess);
    pair.ranks->streams[0]->finish();
    CHECK(memcmp(pair.buffers[0]->read(4).data(), &value, 4) == 0);
    // Other ranks are not affected.
    CHECK(pair.send(2, 0, 9) == weftSuccess);
    CHECK(pair.receive(0, 2, 9) == weftSuccess);
    pair.ranks->streams[0]->finish();
    CHECK(pair.receive(0, 1, 1) == weftSuccess);
    pair.ranks->streams[0]->finish();
    CHECK(pair.ranks->await_failure(0) == weftRemoteError);
    CHECK_REFUSED(pair.receive(0, 1, 1), pair.comm(0), "rank.left", 1, 0);
    pair.ranks->comms.erase(pair.ranks->comms.begin() + 1);
}

TEST_CASE("a receiver that has read by zero-copy may leave while the sender waits for another", "[messages]") {
    Pair pair;
    demand(weftGroupStart());
    demand(pair.send(0, 1, 400'000));
    demand(pair.receive(0, 2, 1));
    demand(weftGroupEnd());
    CHECK(pair.receive(1, 0, 400'000) == weftSuccess);
    pair.ranks->streams[1]->finish();
    demand(weftCommDestroy(pair.ranks->comms[1]));
    std::this_thread::sleep_for(
        std::chrono::milliseconds(500));  // some looks of the service thread; less is right, too
    CHECK(pair.send(2, 0, 1) == weftSuccess);
    for (const int rank : {0, 2}) pair.ranks->streams[size_t(rank)]->finish();
    pair.ranks->comms.erase(pair.ranks->comms.begin() + 1);
    pair.ranks->check_healthy();
}

TEST_CASE("weftCommAbort ends kernels that wait for messages", "[messages]") {
    const Pair pair;
    CHECK(pair.receive(0, 1, 1) == weftSuccess);
    CHECK(pair.send(2, 1, 500'000) == weftSuccess);
    CHECK(weftCommAbort(pair.ranks->comms[1]) == weftSuccess);
    pair.ranks->finish();
    for (const int rank : {0, 2}) CHECK(pair.ranks->await_failure(rank) == weftRemoteError);
    CHECK_REFUSED(pair.receive(0, 1, 1), pair.comm(0), "abort.remote", 1);
}

TEST_CASE("calls beside messages that are refused are carried out", "[messages]") {
    const Pair pair;
    const Stream other(pair.ranks->placing[0]);
    weftComm_t children[3] = {};
    demand(weftGroupStart());
    demand(pair.send(0, 1, 5));
    demand(weftSend(pair.buffer(0), 5, weftFloat32, 2, pair.comm(0), other.weft()));
    for (int rank = 0; rank < 3; ++rank) {
        demand(weftCommSplit(pair.comm(rank), 0, 0, &children[rank], nullptr));
        demand(weftBarrier(pair.comm(rank), pair.stream(rank)));
    }
    CHECK(weftGroupEnd() == weftInvalidUsage);
    CHECK(test::id_in(weftGetLastError(nullptr)) == "group.streams");
    for (uint64_t call = 0; call < 8; ++call) {
        weftResult_t result = weftInProgress;
        demand(weftGroupGetCallError(call, &result, nullptr));
        CHECK(result == (call < 2 ? weftInvalidUsage : weftSuccess));
    }
    pair.ranks->finish();
    pair.ranks->check_healthy();
    for (const weftComm_t child : children) CHECK(weftCommDestroy(child) == weftSuccess);
}

TEST_CASE("a refused message on device memory leaves the communicator usable", "[messages]") {
    const Pair pair;
    demand(weftGroupStart());
    demand(pair.send(0, 0, 5));
    demand(pair.receive(0, 0, 6));
    CHECK_REFUSED(weftGroupEnd(), nullptr, "mismatch.message");
    demand(weftGroupStart());
    demand(pair.receive(0, 0, 6));
    CHECK_REFUSED(weftGroupEnd(), nullptr, "usage.self-message");
    const Stream other(pair.ranks->placing[0]);
    demand(weftGroupStart());
    demand(pair.send(0, 1, 5));
    demand(weftSend(pair.buffer(0), 5, weftFloat32, 2, pair.comm(0), other.weft()));
    CHECK(weftGroupEnd() == weftInvalidUsage);
    CHECK(test::id_in(weftGetLastError(nullptr)) == "group.streams");
    const size_t counts[3] = {0, 0, 600'000}, places[3] = {0, 0, 0}, none[3] = {};
    CHECK_REFUSED(
        weftAlltoAllv(pair.buffer(0), counts, places, nullptr, none, places, weftFloat32, pair.comm(0), pair.stream(0)),
        pair.comm(0), "memory.bounds");
    CHECK_THAT(weftGetLastError(pair.comm(0)), Catch::Contains(" 399999 bytes"));
    pair.ranks->check_healthy();
    CHECK(pair.send(0, 1, 5) == weftSuccess);
    CHECK(pair.receive(1, 0, 5) == weftSuccess);
    pair.ranks->finish();
    pair.ranks->check_healthy();
}

}  // namespace weft::internal::test
