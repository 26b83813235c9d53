// windows_test.cpp: windows of device memory: puts, gets and signals of ranks as threads of one process, against a
// model. Tested in graphs, beside other calls and windows of host memory; with refused calls and missing signals.
#include <algorithm>
#include <cstring>
#include <thread>

#include "tests/device/ranks.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

namespace {

// A window with as many bytes of each rank.
struct Window {
    Window(const Ranks& of, const std::vector<size_t>& bytes) : ranks(of), windows(size_t(of.count())) {
        for (int rank = 0; rank < ranks.count(); ++rank) {
            const auto r = size_t(rank);
            parts.push_back(std::make_unique<DeviceBuffer>(ranks.placing[r], bytes[r], 64 + r * 4));
            contents.emplace_back(bytes[r], std::byte{0xa5});
            parts[r]->write(contents[r].data(), bytes[r]);
        }
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftCommWindowRegister(ranks.comms[r], bytes[r] > 0 ? parts[r]->data() : nullptr, bytes[r],
                                          &windows[r], WEFT_WIN_DEFAULT);
        });
    }
    Window(const Ranks& of, size_t bytes) : Window(of, std::vector<size_t>(size_t(of.count()), bytes)) {}
    Window(const Window&) = delete;
    void end() {
        ranks.group(
            [&](int rank) { return weftCommWindowDeregister(ranks.comms[size_t(rank)], windows[size_t(rank)]); });
        windows.clear();
    }
    ~Window() {
        if (!windows.empty()) end();
    }
    // Nothing but what the model has.
    void check() const {
        for (size_t rank = 0; rank < parts.size(); ++rank)
            if (parts[rank]->read(contents[rank].size()) != contents[rank])
                FAIL_CHECK("the part of rank " << rank << " holds something else");
    }
    const Ranks& ranks;
    std::vector<weftWindow_t> windows;
    std::vector<std::unique_ptr<DeviceBuffer>> parts;
    std::vector<Bytes> contents;  // the model
};

weftStream_t stream_of(const Ranks& ranks, int rank) { return ranks.streams[size_t(rank)]->weft(); }
weftComm_t comm_of(const Ranks& ranks, int rank) { return ranks.comms[size_t(rank)]; }

weftResult_t wait_for(const Ranks& ranks, int rank, const std::vector<weftWaitSignalDesc_t>& signals) {
    return weftWaitSignal(int(signals.size()), signals.data(), comm_of(ranks, rank), stream_of(ranks, rank));
}

size_t draw_bytes(std::mt19937& random) {
    switch (random() % 6) {
        case 0: return 0;
        case 1: return random() % 40'000;
        case 2: return random() % size_t(small() ? 100'000 : 600'000);
        default: return random() % 200;
    }
}

}  // namespace

TEST_CASE("data put into a window of device memory is there when its signal has come", "[windows]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (const int n : small() ? std::vector{1, 2, 3} : std::vector{1, 2, 3, 5, 8}) {
        INFO(n << " ranks");
        const Ranks ranks(spread(n));
        const size_t place = small() ? 100'300 : 600'300;  // that each rank has in each part
        Window window(ranks, place * size_t(n));
        std::vector<std::unique_ptr<DeviceBuffer>> sources, targets;
        for (int rank = 0; rank < n; ++rank) {
            sources.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], place));
            targets.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], place));
        }
        for (int round = 0; round < (small() ? 6 : 20); ++round) {
            // Each rank puts into some parts, with signals of some index. The target waits for all of them, then gets
            // its own earlier put from another part.
            struct Put {
                int from, to, index, context;
                size_t offset, bytes, at;
                bool apart;  // the signal by itself
            };
            std::vector<Put> puts;
            for (int rank = 0; rank < n; ++rank) {
                Bytes data(place);
                for (std::byte& byte : data) byte = std::byte(random());
                sources[size_t(rank)]->write(data.data(), place);
                for (int to = 0; to < n; ++to) {
                    if (random() % 4 == 0) continue;
                    Put put{rank,
                            to,
                            int(random() % WEFT_SIGNALS),
                            int(random() % WEFT_SIGNAL_CONTEXTS),
                            0,
                            0,
                            0,
                            random() % 3 == 0};
                    put.bytes = draw_bytes(random);
                    put.offset = size_t(rank) * place + random() % 100 * (random() % 2 ? 1 : 16);
                    put.bytes = std::min(put.bytes, size_t(rank + 1) * place - put.offset);
                    put.at = random() % (place - put.bytes + 1) / (random() % 2 ? 1 : 16);
                    std::copy_n(data.begin() + ptrdiff_t(put.at), put.bytes,
                                window.contents[size_t(to)].begin() + ptrdiff_t(put.offset));
                    puts.push_back(put);
                }
            }
            ranks.group([&](int rank) {
                for (const Put& put : puts) {
                    if (put.from != rank) continue;
                    const auto* const from = static_cast<const std::byte*>(sources[size_t(rank)]->data()) + put.at;
                    const weftWindow_t handle = window.windows[size_t(rank)];
                    if (put.apart) {
                        demand(weftPut(from, put.bytes, weftInt8, put.to, handle, put.offset, comm_of(ranks, rank),
                                       stream_of(ranks, rank)));
                        demand(weftSignal(put.to, put.index, put.context, 0, comm_of(ranks, rank),
                                          stream_of(ranks, rank)));
                    } else {
                        demand(weftPutSignal(from, put.bytes, weftInt8, put.to, handle, put.offset, put.index,
                                             put.context, 0, comm_of(ranks, rank), stream_of(ranks, rank)));
                    }
                }
                return weftSuccess;
            });
            // One by one or at once, the same signal several times.
            ranks.group([&](int rank) {
                std::vector<weftWaitSignalDesc_t> signals;
                for (const Put& put : puts)
                    if (put.to == rank) signals.push_back({1, put.from, put.index, put.context});
                if (random() % 2) return wait_for(ranks, rank, signals);
                for (const auto& signal : signals) demand(wait_for(ranks, rank, {signal}));
                return weftSuccess;
            });
            std::vector<std::pair<int, Put>> gets;
            for (const Put& put : puts)
                if (std::none_of(gets.begin(), gets.end(), [&](const auto& get) { return get.first == put.from; }))
                    gets.emplace_back(put.from, put);
            ranks.group([&](int rank) {
                for (const auto& [who, put] : gets)
                    if (who == rank)
                        demand(weftGet(targets[size_t(rank)]->data(), put.bytes, weftInt8, put.to,
                                       window.windows[size_t(rank)], put.offset, comm_of(ranks, rank),
                                       stream_of(ranks, rank)));
                return weftSuccess;
            });
            ranks.finish();
            window.check();
            for (const auto& [who, put] : gets) {
                const Bytes& part = window.contents[size_t(put.to)];
                const Bytes wanted(part.begin() + ptrdiff_t(put.offset),
                                   part.begin() + ptrdiff_t(put.offset + put.bytes));
                CHECK(targets[size_t(who)]->read(put.bytes) == wanted);
            }
        }
        window.end();
        ranks.check_healthy();
    }
}

TEST_CASE("ranks in threads of their own pass a token around by puts, on changing streams", "[windows]") {
    const int n = small() ? 2 : 4, rounds = small() ? 10 : 60;
    const Ranks ranks(spread(n));
    Window window(ranks, 4);
    check_on_threads(n, [&](int rank) {
        const auto r = size_t(rank);
        const Stream other(ranks.placing[r]);
        const auto* const own = static_cast<const uint32_t*>(window.parts[r]->data());
        for (int round = 0; round < rounds; ++round) {
            const weftStream_t stream = round % 3 == 0 ? other.weft() : stream_of(ranks, rank);
            const weftWaitSignalDesc_t before{1, (rank + n - 1) % n, 0, 0};
            if (rank > 0 || round > 0) demand(weftWaitSignal(1, &before, ranks.comms[r], stream));
            // The token goes on, and the host adds one in each round.
            if (rank == 0) {
                (round % 3 == 0 ? other : *ranks.streams[r]).finish();
                const auto token = uint32_t(round);
                uint32_t got = 0;
                memcpy(&got, window.parts[r]->read(4).data(), 4);
                if (round > 0 && got + 1 != token) throw std::runtime_error("another token has come");
                window.parts[r]->write(&token, 4);
            }
            demand(weftPutSignal(own, 1, weftUint32, (rank + 1) % n, window.windows[r], 0, 0, 0, 0, ranks.comms[r],
                                 stream));
        }
        other.finish();
    });
    // The last one's is taken, so that nothing is left.
    CHECK(wait_for(ranks, 0, {{1, n - 1, 0, 0}}) == weftSuccess);
    ranks.finish();
}

TEST_CASE("captured puts and waits replay, and count on between other calls", "[windows]") {
    const int n = 3;
    const Ranks ranks(spread(n));
    const size_t count = 30'000;
    Window window(ranks, count * 4);
    std::vector<std::unique_ptr<DeviceBuffer>> sources, sums;
    for (int rank = 0; rank < n; ++rank) {
        sources.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], count * 4));
        sums.push_back(std::make_unique<DeviceBuffer>(ranks.placing[size_t(rank)], 4));
    }
    const auto shift = [&] {
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            demand(weftPutSignal(sources[r]->data(), count, weftUint32, (rank + 1) % n, window.windows[r], 0, 2, 1, 0,
                                 ranks.comms[r], stream_of(ranks, rank)));
            demand(wait_for(ranks, rank, {{1, (rank + n - 1) % n, 2, 1}}));
            // No rank puts again before all have read.
            return weftAllReduce(sums[r]->data(), sums[r]->data(), 1, weftUint32, weftSum, ranks.comms[r],
                                 stream_of(ranks, rank));
        });
    };
    const Captured graphs(ranks, shift);
    for (int round = 0; round < 4; ++round) {
        for (int rank = 0; rank < n; ++rank) {
            const std::vector<uint32_t> values(count, uint32_t(round * 10 + rank));
            sources[size_t(rank)]->write(values.data(), count * 4);
        }
        round == 2 ? shift() : graphs.launch();
        ranks.finish();
        for (int rank = 0; rank < n; ++rank) {
            const std::vector<uint32_t> values(count, uint32_t(round * 10 + (rank + n - 1) % n));
            CHECK(memcmp(window.parts[size_t(rank)]->read(count * 4).data(), values.data(), count * 4) == 0);
        }
    }
    ranks.check_healthy();
}

TEST_CASE("windows of both kinds of memory stand side by side, and their signals apart", "[windows]") {
    const int n = 2;
    const Ranks ranks(spread(n));
    Window on_device(ranks, 64);
    std::vector<std::vector<uint32_t>> parts(n, std::vector<uint32_t>(4));
    weftWindow_t on_host[n];
    ranks.group([&](int rank) {
        const auto r = size_t(rank);
        return weftCommWindowRegister(ranks.comms[r], parts[r].data(), 16, &on_host[r], WEFT_WIN_DEFAULT);
    });
    const uint32_t value = 77;
    // Rank 1 has nothing of the host's signal when that of the device has come, and the other way round.
    CHECK(weftPutSignal(&value, 1, weftUint32, 1, on_host[0], 4, 0, 0, 0, ranks.comms[0], nullptr) == weftSuccess);
    const weftWaitSignalDesc_t one{1, 0, 0, 0};
    CHECK(weftWaitSignal(1, &one, ranks.comms[1], nullptr) == weftSuccess);
    CHECK(parts[1][1] == 77);
    CHECK(weftSignal(1, 0, 0, 0, ranks.comms[0], stream_of(ranks, 0)) == weftSuccess);
    CHECK(weftWaitSignal(1, &one, ranks.comms[1], stream_of(ranks, 1)) == weftSuccess);
    ranks.finish();
    ranks.check_healthy();
    // Each with its own memory.
    const DeviceBuffer source(ranks.placing[0], 4);
    CHECK(weftPut(&value, 1, weftUint32, 1, on_device.windows[0], 0, ranks.comms[0], nullptr) == weftInvalidArgument);
    CHECK(weftPut(source.data(), 1, weftUint32, 1, on_host[0], 0, ranks.comms[0], stream_of(ranks, 0)) ==
          weftInvalidArgument);
    CHECK_REFUSED(
        weftPut(source.data(), 10, weftUint32, 1, on_device.windows[0], 28, ranks.comms[0], stream_of(ranks, 0)),
        ranks.comms[0], "memory.bounds");
    CHECK_REFUSED(
        weftPut(source.data(), 1, weftUint32, 1, on_device.windows[0], 61, ranks.comms[0], stream_of(ranks, 0)),
        ranks.comms[0], "window.range");
    // From this rank's own part to a place in it.
    std::byte* const part = static_cast<std::byte*>(on_device.parts[0]->data());
    CHECK_REFUSED(weftPut(part + 4, 2, weftUint32, 0, on_device.windows[0], 0, ranks.comms[0], stream_of(ranks, 0)),
                  ranks.comms[0], "argument.overlap");
    CHECK_REFUSED(weftGet(part, 2, weftUint32, 0, on_device.windows[0], 4, ranks.comms[0], stream_of(ranks, 0)),
                  ranks.comms[0], "argument.overlap");
    demand(weftPut(part, 4, weftUint32, 0, on_device.windows[0], 0, ranks.comms[0], stream_of(ranks, 0)));
    ranks.finish();
    CHECK(on_device.parts[0]->read(16) == Bytes(16, std::byte{0xa5}));
    ranks.group([&](int rank) { return weftCommWindowDeregister(ranks.comms[size_t(rank)], on_host[rank]); });
    on_device.end();
    ranks.check_healthy();
}

TEST_CASE("in one thread's group one rank puts more often than the other waits, before their common call",
          "[windows]") {
    for (const bool closing : {false, true}) {
        INFO(closing);
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.timeoutMs = 60'000;
        const Ranks ranks(spread(2), &config);
        Window window(ranks, 64);
        const DeviceBuffer source(ranks.placing[0], 4);
        const weftWaitSignalDesc_t three{3, 0, 0, 0};
        int sums[2] = {1, 2};
        demand(weftGroupStart());
        for (size_t put = 0; put < 3; ++put)
            demand(weftPutSignal(source.data(), 1, weftUint32, 1, window.windows[0], put * 4, 0, 0, 0,
                                 comm_of(ranks, 0), stream_of(ranks, 0)));
        demand(wait_for(ranks, 1, {three}));
        for (int rank = 0; rank < 2; ++rank)
            demand(closing
                       ? weftCommWindowDeregister(comm_of(ranks, rank), window.windows[size_t(rank)])
                       : weftAllReduce(&sums[rank], &sums[rank], 1, weftInt32, weftSum, comm_of(ranks, rank), nullptr));
        CHECK(weftGroupEnd() == weftSuccess);
        if (closing) window.windows.clear();
        CHECK(sums[1] == (closing ? 2 : 3));
        ranks.finish();
        ranks.check_healthy();
    }
}

TEST_CASE("a rank may pass no memory, and memory that fits no window is an error of all", "[windows]") {
    const int n = 3;
    const Ranks ranks(spread(n));
    {
        Window window(ranks, {16, 0, 32});
        const DeviceBuffer source(ranks.placing[1], 16);
        const Bytes data(16, std::byte{9});
        source.write(data.data(), 16);
        CHECK(weftPutSignal(source.data(), 16, weftInt8, 2, window.windows[1], 16, 0, 0, 0, ranks.comms[1],
                            stream_of(ranks, 1)) == weftSuccess);
        CHECK(wait_for(ranks, 2, {{1, 1, 0, 0}}) == weftSuccess);
        ranks.finish();
        std::copy(data.begin(), data.end(), window.contents[2].begin() + 16);
        window.check();
        CHECK(weftPut(source.data(), 1, weftInt8, 1, window.windows[1], 0, ranks.comms[1], stream_of(ranks, 1)) ==
              weftInvalidArgument);
    }
    const auto refused = [&](const std::function<void*(size_t)>& memory, const char* text, size_t told) {
        std::vector<weftWindow_t> windows(n);
        demand(weftGroupStart());
        for (size_t rank = 0; rank < n; ++rank)
            CHECK(weftCommWindowRegister(ranks.comms[rank], memory(rank), 4, &windows[rank], 0) == weftSuccess);
        CHECK(weftGroupEnd() == weftInvalidArgument);
        CHECK_THAT(weftGetLastError(ranks.comms[told]), Catch::Contains(text));
        ranks.check_healthy();
        for (size_t rank = 0; rank < n; ++rank) {
            INFO(rank);
            CHECK(weftCommWindowDeregister(ranks.comms[rank], windows[rank]) == weftInvalidUsage);
        }
    };
    std::vector<std::unique_ptr<DeviceBuffer>> plain;
    for (const int device : ranks.placing) plain.push_back(std::make_unique<DeviceBuffer>(device, 4));
    uint32_t on_host = 0;
    refused([&](size_t rank) { return rank == 1 ? static_cast<void*>(&on_host) : plain[rank]->data(); },
            "rank 1 registers host memory and rank 0 device memory", 2);
    const DeviceBuffer pool(ranks.placing[2], 4, 0, DeviceBuffer::Kind::pool);
    const auto with_pool = [&](size_t rank) { return rank == 2 ? pool.data() : plain[rank]->data(); };
    refused(with_pool, "[window.unsuitable]", 2);
    const DeviceBuffer short_one(ranks.placing[1], 2);
    refused([&](size_t rank) { return rank == 1 ? short_one.data() : plain[rank]->data(); },
            "the memory of rank 1 cannot be in a window", 2);
    refused(with_pool, "the memory of rank 2 cannot be in a window", 0);
    // It goes on.
    Window window(ranks, 4);
    CHECK(weftSignal(1, 0, 0, 0, ranks.comms[0], stream_of(ranks, 0)) == weftSuccess);
    CHECK(wait_for(ranks, 1, {{1, 0, 0, 0}}) == weftSuccess);
    ranks.finish();
    ranks.check_healthy();
}

TEST_CASE("ranks that deregister different windows mismatch", "[windows]") {
    const Ranks ranks(spread(2));
    Window first(ranks, 4), second(ranks, 4);
    demand(weftGroupStart());
    CHECK(weftCommWindowDeregister(ranks.comms[0], first.windows[0]) == weftSuccess);
    CHECK(weftCommWindowDeregister(ranks.comms[1], second.windows[1]) == weftSuccess);
    CHECK(weftGroupEnd() == weftMismatch);
    CHECK(test::id_in(weftGetLastError(ranks.comms[0])) == "mismatch.window");
    for (Window* const window : {&first, &second}) window->windows.clear();
}

TEST_CASE("signals want a window of the memory that they are of", "[windows]") {
    const Ranks ranks(spread(2));
    CHECK(weftSignal(1, 0, 0, 0, ranks.comms[0], stream_of(ranks, 0)) == weftInvalidUsage);
    Window window(ranks, 4);
    CHECK(weftSignal(1, 0, 0, 0, ranks.comms[0], nullptr) == weftInvalidUsage);
    // A put of no bytes is its window's, wherever it says that it lies, but not in a queue of the host's.
    weftStream_t queue = nullptr;
    demand(weftStreamCreate(&queue));
    CHECK(weftPutSignal(nullptr, 0, weftInt8, 1, window.windows[0], 0, 0, 0, 0, ranks.comms[0], queue) == weftSuccess);
    CHECK(weftStreamWait(queue, WEFT_STREAM_ALL, -1) == weftInvalidArgument);
    demand(weftStreamDestroy(queue));
    if (ranks.placing[0] != ranks.placing[1]) {
        const weftWaitSignalDesc_t one{1, 0, 0, 0};
        CHECK(weftPutSignal(nullptr, 0, weftInt8, 1, window.windows[0], 0, 0, 0, 0, ranks.comms[0], nullptr) ==
              weftSuccess);
        CHECK(weftWaitSignal(1, &one, ranks.comms[1], stream_of(ranks, 1)) == weftSuccess);
        ranks.finish();
    }
    ranks.check_healthy();
}

TEST_CASE("a missing signal fails the wait at the deadline and names its rank", "[windows]") {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = 1000;
    const Ranks ranks(spread(3), &config);
    Window window(ranks, 4);
    CHECK(weftSignal(0, 3, 1, 0, ranks.comms[2], stream_of(ranks, 2)) == weftSuccess);
    ranks.streams[2]->finish();
    CHECK(wait_for(ranks, 0, {{1, 2, 3, 1}, {2, 2, 3, 1}}) == weftSuccess);
    ranks.finish();
    for (int rank = 0; rank < 3; ++rank) CHECK(ranks.await_failure(rank) == weftTimeout);
    CHECK_REFUSED(weftSignal(1, 0, 0, 0, ranks.comms[0], stream_of(ranks, 0)), ranks.comms[0], "timeout.signal", 2, 0);
    CHECK_THAT(weftGetLastError(ranks.comms[0]), Catch::Contains(" 1 of the 3 signals with index 3 and context 1"));
    // A window of a dead communicator still ends.
    for (int rank = 0; rank < 3; ++rank)
        CHECK(weftCommWindowDeregister(ranks.comms[size_t(rank)], window.windows[size_t(rank)]) == weftSuccess);
    window.windows.clear();
}

TEST_CASE("a rank that left without its signal is named", "[windows]") {
    const Ranks ranks(spread(3));
    Window window(ranks, 4);
    // A signal that the rank sent before it left has arrived.
    CHECK(weftSignal(0, 0, 0, 0, ranks.comms[1], stream_of(ranks, 1)) == weftSuccess);
    ranks.streams[1]->finish();
    auto& comms = const_cast<std::vector<weftComm_t>&>(ranks.comms);
    demand(weftCommDestroy(comms[1]));
    CHECK(wait_for(ranks, 0, {{1, 1, 0, 0}}) == weftSuccess);
    ranks.streams[0]->finish();
    CHECK(wait_for(ranks, 0, {{1, 1, 0, 0}}) == weftSuccess);
    ranks.streams[0]->finish();
    CHECK(ranks.await_failure(2) == weftRemoteError);
    CHECK_REFUSED(weftSignal(2, 0, 0, 0, comms[0], stream_of(ranks, 0)), comms[0], "rank.left", 1, 0);
    comms.erase(comms.begin() + 1);
    window.windows.clear();
}

TEST_CASE("a put into the part of a rank that has left is an error", "[windows]") {
    const Ranks ranks(spread(2));
    Window window(ranks, 4);
    auto& comms = const_cast<std::vector<weftComm_t>&>(ranks.comms);
    demand(weftCommDestroy(comms[1]));
    CHECK_REFUSED(
        weftPut(window.parts[0]->data(), 1, weftUint32, 1, window.windows[0], 0, comms[0], stream_of(ranks, 0)),
        comms[0], "rank.left", 1, 0);
    comms.pop_back();
    window.windows.clear();
}

TEST_CASE("after an abort kernels that wait for signals leave", "[windows]") {
    const Ranks ranks(spread(2));
    Window window(ranks, 4);
    CHECK(wait_for(ranks, 0, {{1, 1, 0, 0}}) == weftSuccess);
    auto& comms = const_cast<std::vector<weftComm_t>&>(ranks.comms);
    demand(weftCommAbort(comms[1]));
    ranks.streams[0]->finish();
    CHECK(ranks.await_failure(0) == weftRemoteError);
    comms.pop_back();
    window.windows.clear();
}

TEST_CASE("where kernels do not reach each other's memory windows of device memory are refused with the reason",
          "[refused]") {
    const Ranks ranks(spread(2));
    const bool over_tcp = getenv("WEFT_TRANSPORTS") != nullptr;
    std::vector<std::unique_ptr<DeviceBuffer>> parts;
    weftWindow_t windows[2];
    demand(weftGroupStart());
    for (size_t rank = 0; rank < 2; ++rank) {
        parts.push_back(std::make_unique<DeviceBuffer>(ranks.placing[rank], 4));
        CHECK(weftCommWindowRegister(ranks.comms[rank], parts[rank]->data(), 4, &windows[rank], 0) == weftSuccess);
    }
    CHECK(weftGroupEnd() != weftSuccess);
    for (const weftComm_t comm : ranks.comms)
        CHECK_THAT(weftGetLastError(comm), Catch::Contains("[window.unreachable]") &&
                                               Catch::Contains(over_tcp ? "on several hosts" : "device 1"));
    ranks.check_healthy();
    // Windows of host memory are as before.
    uint32_t on_host[2] = {};
    ranks.group([&](int rank) {
        return weftCommWindowRegister(ranks.comms[size_t(rank)], &on_host[rank], 4, &windows[rank], 0);
    });
    ranks.group([&](int rank) { return weftCommWindowDeregister(ranks.comms[size_t(rank)], windows[rank]); });
    ranks.check_healthy();
}

}  // namespace weft::internal::test
