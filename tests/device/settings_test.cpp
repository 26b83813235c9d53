// settings_test.cpp: call configs on device memory (weftCommSetCallConfig): algorithms of those that the communicator
// has, channels, blocks, deadlines.
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

void ask(const Ranks& ranks, const char* algo, int channels = WEFT_CONFIG_UNDEF_INT) {
    weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
    settings.algo = algo;
    settings.channels = channels;
    for (weftComm_t comm : ranks.comms) demand(weftCommSetCallConfig(comm, &settings));
}

std::string planned(const Ranks& ranks, size_t count) {
    char text[8000];
    demand(weftCommExplain(ranks.comms[0], count, weftInt32, weftSum, text, sizeof text, nullptr));
    const std::string all = text;
    const size_t line = all.find("in device memory: ");
    return line == std::string::npos ? all : all.substr(line);
}

// Each rank alone is refused, for all see the same facts.
void check_refused(const Ranks& ranks, size_t count, const char* why) {
    const DeviceBuffer buffer(ranks.placing[0], count * 4);
    CHECK_REFUSED(weftAllReduce(buffer.data(), buffer.data(), count, weftInt32, weftSum, ranks.comms[0],
                                ranks.streams[0]->weft()),
                  ranks.comms[0], "gpu.not-served");
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains(why));
}

}  // namespace

TEST_CASE("calls choose among the kernels that the communicator has, until they are asked for nothing", "[settings]") {
    std::mt19937 random(11);
    const Ranks ranks(spread(3));
    struct {
        const char* algo;
        size_t count;
        const char* kernel;
    } const cases[] = {{"two_shot", 1000, "packet_two_shot"},
                       {"one_shot", 50'000, "packet_one_shot"},
                       {"all_reduce@-16K:two_shot", 1000, "packet_two_shot"},
                       {nullptr, 1000, "packet_one_shot"}};
    for (const auto& each : cases) {
        INFO((each.algo ? each.algo : "nothing") << ", " << each.count);
        ask(ranks, each.algo);
        CHECK_THAT(planned(ranks, each.count), Catch::StartsWith(std::string("in device memory: ") + each.kernel));
        CHECK(compare(ranks, {weftInt32, weftSum, each.count, false, 0}, random) == "");
    }
    ask(ranks, "ring");
    check_refused(ranks, 1000, "algo of the call's config is ring: all_reduce on device memory of 3 ranks");
    // Messages and barriers are no choice of algorithms.
    ranks.group([&](int rank) { return weftBarrier(ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft()); });
    ask(ranks, nullptr);
    CHECK(compare(ranks, {weftInt32, weftSum, 1000, true, 0}, random) == "");
}

TEST_CASE("calls choose algorithms over connections that the communicator's config names", "[settings]") {
    std::mt19937 random(12);
    const weftConfig_t config = with_algo("one_shot,two_shot,ring");
    const Ranks ranks(spread(3), &config);
    CHECK_THAT(planned(ranks, 30'000), Catch::StartsWith("in device memory: packet_two_shot"));
    ask(ranks, "ring");
    CHECK_THAT(planned(ranks, 30'000), Catch::StartsWith("in device memory: ring, "));
    CHECK(compare(ranks, {weftInt32, weftSum, 30'000, false, 0}, random) == "");
    const std::vector<int> ones(1000, 1), nines(1000, 9);
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    for (const int device : ranks.placing) {
        buffers.push_back(std::make_unique<DeviceBuffer>(device, 4000));
        buffers.back()->write(ones.data(), 4000);
    }
    const auto sum = [&] {
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftAllReduce(buffers[r]->data(), buffers[r]->data(), 1000, weftInt32, weftSum, ranks.comms[r],
                                 ranks.streams[r]->weft());
        });
    };
    {
        // A captured call keeps its config, beside calls with other configs.
        const Captured captured(ranks, sum);
        ask(ranks, "one_shot");
        captured.launch();
        sum();
        ranks.finish();
        for (const auto& buffer : buffers) CHECK(memcmp(buffer->read(4000).data(), nines.data(), 4000) == 0);
    }
    ask(ranks, nullptr, 2);
    CHECK(compare(ranks, {weftInt32, weftSum, 30'000, false, 0}, random) == "");
    ask(ranks, "ring", 0);
    CHECK(compare(ranks, {weftInt32, weftSum, 30'000, false, 0}, random) == "");
    ask(ranks, "ring", 2);
    check_refused(ranks, 30'000, "channels were made with the communicator (WEFT_CHANNELS), and the call asks for 2");
    ask(ranks, "double_binary_tree");
    check_refused(ranks, 30'000, "double_binary_tree: its connections are made with the communicator");
    ranks.check_healthy();
}

TEST_CASE("calls and communicators limit the blocks of kernels", "[settings]") {
    std::mt19937 random(14);
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.minBlocks = 3, config.maxBlocks = 4;
    const Ranks ranks(spread(3), &config);
    const auto ask_blocks = [&](int least, int most) {
        weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
        settings.minBlocks = least, settings.maxBlocks = most;
        for (weftComm_t comm : ranks.comms) demand(weftCommSetCallConfig(comm, &settings));
    };
    constexpr int none = WEFT_CONFIG_UNDEF_INT;
    const struct {
        int least, most;
        const char *small, *large;
    } cases[] = {{none, none, ", 3 blocks", ", 4 blocks"}, {1, 2, ", 1 block ", ", 2 blocks"},
                 {2, none, ", 2 blocks", ", 4 blocks"},    {none, 1, ", 1 block ", ", 1 block "},
                 {5, 8, ", 5 blocks", ", 8 blocks"},       {none, none, ", 3 blocks", ", 4 blocks"}};
    for (const auto& [least, most, small, large] : cases) {
        INFO(least << " to " << most);
        ask_blocks(least, most);
        for (const auto& [count, blocks] : {std::pair(size_t(5), small), {size_t(300'000), large}}) {
            CHECK_THAT(planned(ranks, count), Catch::Contains(blocks));
            CHECK(compare(ranks, {weftInt32, weftSum, count, false, 0}, random) == "");
        }
    }
    // Small all-reduces of a group, which would be joined.
    const std::vector<int> ones(300, 1), threes(300, 3);
    const RankBuffers buffers(ranks, 1200);
    for (const int least : {1, 5}) {
        ask_blocks(least, none);
        for (const auto& buffer : buffers.all) buffer->write(ones.data(), 1200);
        ranks.group([&](int rank) {
            weftResult_t result = weftSuccess;
            for (int part = 0; part < 3 && result == weftSuccess; ++part) {
                auto* const place = static_cast<int*>(buffers[rank]) + 100 * part;
                result = weftAllReduce(place, place, 100, weftInt32, weftSum, ranks.comms[size_t(rank)],
                                       ranks.streams[size_t(rank)]->weft());
            }
            return result;
        });
        ranks.finish();
        for (const auto& buffer : buffers.all) CHECK(memcmp(buffer->read(1200).data(), threes.data(), 1200) == 0);
    }
    ranks.check_healthy();
}

TEST_CASE("a message's kernel has no more blocks than the call's config allows", "[settings][fake]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, 1 << 20);
    const auto send = [&] {
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftSendRecv(buffers[rank], 1 << 17, 1 - rank, static_cast<char*>(buffers[rank]) + (1 << 19),
                                1 << 17, 1 - rank, weftInt32, ranks.comms[r], ranks.streams[r]->weft());
        });
        ranks.finish();
        return fake::last_blocks();
    };
    CHECK(send() > 3);
    weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
    settings.maxBlocks = 3;
    for (weftComm_t comm : ranks.comms) demand(weftCommSetCallConfig(comm, &settings));
    CHECK(send() == 3);
    ranks.check_healthy();
}

TEST_CASE("ranks that ask for different algorithms get an error", "[settings]") {
    for (const char* other : {"two_shot", "ring"}) {
        const weftConfig_t config = with_algo("one_shot,two_shot,ring");
        const Ranks ranks(spread(2), &config);
        weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
        settings.algo = other;
        demand(weftCommSetCallConfig(ranks.comms[1], &settings));
        std::vector<std::unique_ptr<DeviceBuffer>> buffers;
        for (const int device : ranks.placing) buffers.push_back(std::make_unique<DeviceBuffer>(device, 4000));
        ranks.differing_group([&](int rank) {
            const auto r = size_t(rank);
            return weftAllReduce(buffers[r]->data(), buffers[r]->data(), 1000, weftInt32, weftSum, ranks.comms[r],
                                 ranks.streams[r]->weft());
        });
        ranks.finish();
        for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftMismatch);
        CHECK_REFUSED(weftAllReduce(buffers[0]->data(), buffers[0]->data(), 1000, weftInt32, weftSum, ranks.comms[0],
                                    ranks.streams[0]->weft()),
                      ranks.comms[0], "mismatch.algorithm");
        CHECK_THAT(weftGetLastError(ranks.comms[0]),
                   Catch::Contains("all_reduce of 1000 int32, sum, in device memory"));
    }
}

TEST_CASE("a call's deadline is its own, shorter or longer than the communicator's", "[settings]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = 60'000;
    weftCallConfig_t settings = WEFT_CALL_CONFIG_INITIALIZER;
    settings.timeoutMs = 100;
    const auto call = [](const Ranks& ranks, const DeviceBuffer& buffer, int rank, bool message) {
        weftComm_t comm = ranks.comms[size_t(rank)];
        weftStream_t stream = ranks.streams[size_t(rank)]->weft();
        if (!message) return weftAllReduce(buffer.data(), buffer.data(), 100, weftInt32, weftSum, comm, stream);
        return rank == 0 ? weftRecv(buffer.data(), 100, weftInt32, 1, comm, stream)
                         : weftSend(buffer.data(), 100, weftInt32, 0, comm, stream);
    };
    for (const bool message : {false, true}) {
        INFO((message ? "a message" : "a collective"));
        const Ranks ranks(spread(2), &config);
        const DeviceBuffer buffer(ranks.placing[0], 400);
        demand(weftCommSetCallConfig(ranks.comms[0], &settings));
        CHECK(call(ranks, buffer, 0, message) == weftSuccess);
        ranks.finish();
        for (int rank = 0; rank < 2; ++rank) CHECK(ranks.await_failure(rank) == weftTimeout);
        CHECK_REFUSED(call(ranks, buffer, 0, message), ranks.comms[0],
                      message ? "timeout.message" : "timeout.collective", 1, 0);
        CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains("0.1 s"));
    }
    config.timeoutMs = 100;
    for (const int64_t longer : {int64_t(60'000), int64_t(0)})
        for (const bool message : {false, true}) {
            INFO((message ? "a message, " : "a collective, ") << longer);
            const Ranks ranks(spread(2), &config);
            const DeviceBuffer first(ranks.placing[0], 400), second(ranks.placing[1], 400);
            settings.timeoutMs = longer;
            demand(weftCommSetCallConfig(ranks.comms[0], &settings));
            CHECK(call(ranks, first, 0, message) == weftSuccess);
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            CHECK(call(ranks, second, 1, message) == weftSuccess);
            ranks.finish();
            ranks.check_healthy();
        }
}

TEST_CASE("on copies calls choose as on host memory", "[copies]") {
    if (!on_copies()) return;
    std::mt19937 random(13);
    const Ranks ranks(spread(2));
    ask(ranks, "ring", 2);
    CHECK(compare(ranks, {weftInt32, weftSum, 30'000, false, 0}, random) == "");
}

}  // namespace weft::internal::test
