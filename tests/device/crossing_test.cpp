// crossing_test.cpp: several communicators on the same devices, whose calls the ranks launch in different order, on
// separate streams. Results are right if the device has room for all kernels; otherwise the calls fail at the
// deadline. WEFT_GPU_BLOCKS and the size of the devices are in meson.build. Cases without [fake] run on real devices, too.
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/device/machine.hpp"
#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t count = 200'000;  // of a kernel that takes all blocks that it may

struct Both {
    explicit Both(const weftConfig_t* config = nullptr) : first(spread(2), config), second(spread(2), config) {
        const std::vector<uint32_t> ones(count, 1);
        for (const int device : first.placing)
            for (auto* list : {&firsts, &seconds}) {
                list->push_back(std::make_unique<DeviceBuffer>(device, count * 4));
                list->back()->write(ones.data(), count * 4);
            }
    }
    weftResult_t call(bool of_first, size_t rank) const {
        const Ranks& ranks = of_first ? first : second;
        void* const buffer = (of_first ? firsts : seconds)[rank]->data();
        return weftAllReduce(buffer, buffer, count, weftUint32, weftSum, ranks.comms[rank],
                             ranks.streams[rank]->weft());
    }
    // The first of them that has failed.
    weftResult_t failure(std::string* sentence = nullptr) const {
        for (const Ranks* ranks : {&first, &second})
            for (weftComm_t comm : ranks->comms) {
                weftResult_t state = weftSuccess;
                demand(weftCommGetAsyncError(comm, &state));
                if (state == weftSuccess) continue;
                if (sentence) *sentence = weftGetLastError(comm);
                return state;
            }
        return weftSuccess;
    }
    // Rank 0's of the one, rank 1's of the other, and when both run their second calls. False: one ended too soon.
    bool cross() const {
        const auto both_run = [] { return fake::running_blocks(0) > 0 && fake::running_blocks(1) > 0; };
        bool right = call(true, 0) == weftSuccess && call(false, 1) == weftSuccess;
        right = right && eventually([&] { return both_run() || failure() != weftSuccess; }) && both_run();
        right = right && call(false, 0) == weftSuccess && call(true, 1) == weftSuccess;
        first.finish();
        second.finish();
        return right;
    }
    Ranks first, second;
    std::vector<std::unique_ptr<DeviceBuffer>> firsts, seconds;
};

// Four communicators of four ranks. Rank r launches the kernels of communicators r and r + 1 first. If a device has room
// for two and a part of the third only, each communicator lacks a rank.
struct Four {
    static constexpr size_t all = 4, large_count = 1 << 20;  // of a kernel of 64 blocks, if it may have them
    explicit Four(const weftConfig_t* config = nullptr) {
        const std::vector<uint32_t> ones(large_count, 1);
        for (size_t c = 0; c < all; ++c) {
            comms.push_back(std::make_unique<Ranks>(spread(int(all)), config));
            for (const int device : comms[c]->placing) {
                buffers[c].push_back(std::make_unique<DeviceBuffer>(device, large_count * 4));
                buffers[c].back()->write(ones.data(), large_count * 4);
            }
        }
    }
    // `blocks`: of a kernel. False: a call was refused, or kernels did not run as expected.
    bool cross(int blocks) const {
        bool right = true;
        for (size_t turn = 0; turn < all; ++turn) {
            for (size_t rank = 0; rank < all; ++rank) {
                const size_t c = (rank + turn) % all;
                void* const buffer = buffers[c][rank]->data();
                right = right && weftAllReduce(buffer, buffer, large_count, weftUint32, weftSum, comms[c]->comms[rank],
                                               comms[c]->streams[rank]->weft()) == weftSuccess;
            }
            // Before the last turn no communicator has all its kernels.
            const int running = std::min(int(turn + 1) * blocks, 132);
            for (size_t device = 0; device < all && turn + 1 < all && !real_driver(); ++device)
                right = right && eventually([&] { return int(fake::running_blocks(int(device))) == running; });
        }
        for (const auto& each : comms) each->finish();
        return right;
    }
    int failures() const {
        int count = 0;
        for (const auto& each : comms)
            for (weftComm_t comm : each->comms) {
                weftResult_t state = weftSuccess;
                demand(weftCommGetAsyncError(comm, &state));
                count += state == weftTimeout;
            }
        return count;
    }
    std::vector<std::unique_ptr<Ranks>> comms;
    std::vector<std::unique_ptr<DeviceBuffer>> buffers[all];
};

}  // namespace

TEST_CASE("by default the kernels of four communicators find room together on 132 multiprocessors", "[four]") {
    const Four four;
    CHECK(four.cross(32));
    for (const auto& each : four.comms) each->check_healthy();
    const std::vector<uint32_t> fours(Four::large_count, 4);
    for (const auto& of_comm : four.buffers)
        for (const auto& buffer : of_comm)
            CHECK(memcmp(buffer->read(Four::large_count * 4).data(), fours.data(), Four::large_count * 4) == 0);
}

TEST_CASE("kernels of 64 blocks of four communicators do not", "[four_large][fake]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.maxBlocks = 64;
    CHECK(with_growing_limit(500, [&](int64_t timeout_ms) -> std::string {
              config.timeoutMs = timeout_ms;
              const Four four(&config);
              if (!four.cross(64)) return "a kernel had ended before the other ones were launched";
              return eventually([&] { return four.failures() > 0; }) ? "" : "there is no deadline";
          }) == "");
}

namespace {

void check_crosses() {
    const Both both;
    CHECK(both.cross());
    both.first.check_healthy();
    both.second.check_healthy();
    const std::vector<uint32_t> twos(count, 2);
    for (const auto* list : {&both.firsts, &both.seconds})
        for (const auto& buffer : *list) CHECK(memcmp(buffer->read(count * 4).data(), twos.data(), count * 4) == 0);
}

void check_ends_at_deadline() {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    CHECK(with_growing_limit(200, [&](int64_t timeout_ms) -> std::string {
              config.timeoutMs = timeout_ms;
              const Both both(&config);
              if (!both.cross()) return "a kernel had ended before the other ones were launched";
              // The first that gives up leaves its room, in which the other may end well.
              (void)eventually([&] { return both.failure() != weftSuccess; });
              std::string sentence;
              if (both.failure(&sentence) != weftTimeout) return "there is no deadline";
              // No rank is late.
              CHECK_THAT(sentence, Catch::Contains("last called operation 1, all_reduce") &&
                                       Catch::Contains("it has made this call, and its kernel may be behind other work "
                                                       "of its stream, ") &&
                                       Catch::Contains("WEFT_GPU_QUEUES") && Catch::Contains("WEFT_GPU_BLOCKS"));
              return "";
          }) == "");
    // The devices are free again. One behind the other: those of two streams may begin in any order.
    const Both both;
    for (const bool of_first : {true, false}) {
        for (const size_t rank : {size_t(0), size_t(1)}) CHECK(both.call(of_first, rank) == weftSuccess);
        (of_first ? both.first : both.second).finish();
    }
    both.first.check_healthy();
    both.second.check_healthy();
}

}  // namespace

TEST_CASE("kernels of two communicators that find room together may be launched in any order", "[room]") {
    check_crosses();
}

TEST_CASE("kernels that wait for room which others hold that wait for them end at the deadline", "[no_room][fake]") {
    check_ends_at_deadline();
}

// The streams of a device share a hardware queue in the cases below (meson.build).
TEST_CASE("an event behind each launch holds up the other communicator in the hardware queue", "[events][fake]") {
    check_ends_at_deadline();
}

TEST_CASE("communicators whose streams share a hardware queue cross, because no event follows a launch", "[queues]") {
    check_crosses();
}

// A kernel fills a device, and each waits for the one before in the cases below (meson.build).
TEST_CASE("kernels of communicators that all ranks call in one order run in that order on all streams", "[ordered]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.launchOrderImplicit = 1;
    const Both both(&config);
    constexpr int rounds = 10;
    const auto waits = [] { return real_driver() ? 0 : fake::calls("cuStreamWaitEvent"); };
    const int expected_waits = real_driver() ? 0 : 2 * rounds - 1;
    int before = waits();
    // Rank 0 alone first: its kernels wait for those of rank 1.
    for (int round = 0; round < rounds; ++round)
        for (const bool first : {true, false}) REQUIRE(both.call(first, 0) == weftSuccess);
    CHECK(waits() - before == expected_waits);
    if (!real_driver()) CHECK(fake::running_blocks(0) <= 16);
    before = waits();
    for (int round = 0; round < rounds; ++round)
        for (const bool first : {true, false}) REQUIRE(both.call(first, 1) == weftSuccess);
    CHECK(waits() - before == expected_waits);
    both.first.finish();
    both.second.finish();
    both.first.check_healthy();
    both.second.check_healthy();
    const std::vector<uint32_t> sums(count, 1 << rounds);
    for (const auto* list : {&both.firsts, &both.seconds})
        for (const auto& buffer : *list) CHECK(memcmp(buffer->read(count * 4).data(), sums.data(), count * 4) == 0);
}

TEST_CASE("captured kernels of several communicators have the order of the calls, too", "[ordered][fake]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.launchOrderImplicit = 1;
    const Both both(&config);
    std::vector<CUgraphExec> graphs;
    for (const size_t rank : {size_t(0), size_t(1)}) {
        const Current current(both.first.placing[rank]);
        const CUstream one = both.first.streams[rank]->handle, other = both.second.streams[rank]->handle;
        CUevent fork = nullptr, join = nullptr;
        demand(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
        demand(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
        demand(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        demand(cuEventRecord(fork, one));
        demand(cuStreamWaitEvent(other, fork, 0));
        const int before = fake::calls("cuStreamWaitEvent");
        for (const bool first : {true, false}) REQUIRE(both.call(first, rank) == weftSuccess);
        CHECK(fake::calls("cuStreamWaitEvent") == before + 1);
        demand(cuEventRecord(join, other));
        demand(cuStreamWaitEvent(one, join, 0));
        CUgraph graph = nullptr;
        demand(cuStreamEndCapture(one, &graph));
        demand(cuGraphInstantiateWithFlags(&graphs.emplace_back(), graph, 0));
        demand(cuGraphDestroy(graph));
        demand(cuEventDestroy(fork));
        demand(cuEventDestroy(join));
    }
    for (int round = 0; round < 3; ++round)
        for (const size_t rank : {size_t(0), size_t(1)}) {
            const Current current(both.first.placing[rank]);
            demand(cuGraphLaunch(graphs[rank], both.first.streams[rank]->handle));
        }
    both.first.finish();
    for (CUgraphExec graph : graphs) demand(cuGraphExecDestroy(graph));
    both.first.check_healthy();
    both.second.check_healthy();
    const std::vector<uint32_t> sums(count, 8);
    for (const auto* list : {&both.firsts, &both.seconds})
        for (const auto& buffer : *list) CHECK(memcmp(buffer->read(count * 4).data(), sums.data(), count * 4) == 0);
}

TEST_CASE("ranks of one process that share a device are not ordered, because their kernels must run at once",
          "[ordered]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.launchOrderImplicit = 1;
    const Ranks ranks({0, 0}, &config);
    std::mt19937 random(16);
    CHECK(compare(ranks, {weftInt32, weftSum, 3000, false, 0}, random) == "");
    ranks.check_healthy();
}

}  // namespace weft::internal::test
