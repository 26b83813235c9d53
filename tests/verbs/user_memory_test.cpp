// user_memory_test.cpp: calls of the C API on memory that is registered with the transport over verbs. Each rank is a
// thread, and a host of its own (WEFT_TRANSPORTS=verbs). Over the fake libibverbs, which counts the bytes that its
// requests take from a range.
#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>

#include "tests/comm/on_threads.hpp"
#include "tests/verbs/connections.hpp"

namespace weft::internal::test {
namespace {

constexpr size_t count = 200'000;
constexpr uint64_t bytes = count * sizeof(int);

std::vector<int> numbers(int from) {
    std::vector<int> all(count);
    std::iota(all.begin(), all.end(), from);
    return all;
}

void watch(const std::vector<int>& memory) {
    fake_verbs().run(
        fmt::format("watch {} {}", reinterpret_cast<uintptr_t>(memory.data()), memory.size() * sizeof(int)));
}
uint64_t watched() { return fake_verbs().count("watched"); }

// The calls of one rank: the first error stays.
struct Rank {
    weftComm_t comm;
    int rank;
    std::string wrong{};
    void operator()(weftResult_t result) {
        if (result != weftSuccess && wrong.empty()) wrong = weftGetLastError(comm);
    }
    void check(bool right, const char* what) {
        if (!right && wrong.empty()) wrong = fmt::format("rank {}: {}", rank, what);
    }
    void barrier() { (*this)(weftBarrier(comm, nullptr)); }
    void await_signal(int peer) {
        weftWaitSignalDesc_t wanted{};
        wanted.peer = peer;
        wanted.opCnt = 1;
        (*this)(weftWaitSignal(1, &wanted, comm, nullptr));
    }
};

void no_errors(const std::vector<std::string>& wrong) {
    for (const std::string& each : wrong) CHECK(each == "");
}

}  // namespace

TEST_CASE("a window of another host is read and written while its rank makes no call", "[.of-ranks]") {
    const bool registered = GENERATE(true, false);
    INFO((registered ? "from registered memory" : "from other memory"));
    std::atomic<bool> through{false};
    no_errors(on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        std::vector<int> memory(count), mine = numbers(5), back(count);
        void *of_mine = nullptr, *of_back = nullptr;
        weftWindow_t window = nullptr;
        must(weftCommWindowRegister(comm, memory.data(), bytes, &window, WEFT_WIN_DEFAULT));
        if (registered) must(weftCommRegister(comm, mine.data(), bytes, &of_mine));
        if (registered) must(weftCommRegister(comm, back.data(), bytes, &of_back));
        if (rank == 1) {
            must.await_signal(0);  // the first call makes the link
            must.check(eventually([&] { return through.load(); }), "the other rank needs this one's help");
        } else {
            must(weftPutSignal(mine.data(), 1, weftInt32, 1, window, 0, 0, 0, 0, comm, nullptr));
            watch(mine);
            must(weftPut(mine.data(), count, weftInt32, 1, window, 0, comm, nullptr));
            must.check(watched() == (registered ? bytes : 0), "another number of bytes was put from its memory");
            watch(back);
            must(weftGet(back.data(), count, weftInt32, 1, window, 0, comm, nullptr));
            must.check(watched() == (registered ? bytes : 0), "another number of bytes was got into its memory");
            must.check(back == mine, "a get does not see the put before it");
            through = true;
        }
        must(weftCommWindowDeregister(comm, window));
        if (rank == 1) must.check(memory == mine, "the window has other bytes");
        if (registered) must(weftCommDeregister(comm, of_mine));
        if (registered) must(weftCommDeregister(comm, of_back));
        return must.wrong;
    }));
}

TEST_CASE("messages and collectives send registered memory without a copy, and other memory through slots",
          "[.of-ranks]") {
    no_errors(on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        // The memory to send from, and two parts to receive into.
        std::vector<int> memory = numbers(rank * 1'000'000);
        memory.resize(3 * count);
        int *const mine = memory.data(), *const got = mine + count;
        const auto has = [&](size_t part, int from) {
            return std::equal(got + part * count, got + (part + 1) * count, numbers(from).begin());
        };
        const auto call = [&](const char* what, uint64_t expected, auto&& calls) {
            must.barrier();
            if (rank == 0) watch(memory);
            must.barrier();
            std::fill(got, got + 2 * count, -1);
            calls();
            // The last piece of a message may be too small.
            if (rank == 0 && (expected == 0 ? watched() != 0 : watched() < expected - 65'536 || watched() > expected))
                must.check(false,
                           fmt::format("{} sent {} bytes of {} from its memory", what, watched(), expected).c_str());
        };
        const auto calls = [&](uint64_t expected) {
            call("messages", expected, [&] {
                must(weftGroupStart());
                must(weftSend(mine, count, weftInt32, 1 - rank, comm, nullptr));
                must(weftRecv(got, count, weftInt32, 1 - rank, comm, nullptr));
                must(weftGroupEnd());
                must.check(has(0, (1 - rank) * 1'000'000), "a message has other bytes");
            });
            call("broadcast", expected, [&] {
                must(weftBroadcast(mine, got, count, weftInt32, 0, comm, nullptr));
                must.check(has(0, 0), "a broadcast has other bytes");
            });
            call("all-gather", expected, [&] {
                must(weftAllGather(mine, got, count, weftInt32, comm, nullptr));
                must.check(has(0, 0) && has(1, 1'000'000), "an all-gather has other bytes");
            });
        };
        calls(0);
        void* handle = nullptr;
        must(weftCommRegister(comm, memory.data(), memory.size() * sizeof(int), &handle));
        calls(bytes);
        must(weftCommDeregister(comm, handle));
        calls(0);
        return must.wrong;
    }));
}

TEST_CASE("messages and collectives come straight to registered memory, and to other memory through slots",
          "[.of-ranks]") {
    constexpr size_t many = 4'000'000, size = many * sizeof(int);
    no_errors(on_threads(2, "ring", [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        std::vector<int> mine(many), got(2 * many);
        std::iota(mine.begin(), mine.end(), rank * 1'000'000);
        const auto landed = [] { return fake_verbs().count("landed"); };
        // `expected`: bytes that come from the other rank to rank 0. The first messages may come before their offers.
        const auto call = [&](const char* what, bool registered, uint64_t expected, auto&& calls) {
            must.barrier();
            if (rank == 0) watch(got);
            must.barrier();
            calls();
            must.barrier();
            const bool right = registered ? landed() >= expected / 2 && landed() <= expected : landed() == 0;
            if (rank == 0 && !right)
                must.check(false,
                           fmt::format("{}: {} bytes of {} came to its memory", what, landed(), expected).c_str());
        };
        const auto calls = [&](bool registered) {
            call("messages", registered, size, [&] {
                must(weftGroupStart());
                must(weftSend(mine.data(), many, weftInt32, 1 - rank, comm, nullptr));
                must(weftRecv(got.data(), many, weftInt32, 1 - rank, comm, nullptr));
                must(weftGroupEnd());
                must.check(got[0] == (1 - rank) * 1'000'000 && got[many - 1] == got[0] + int(many) - 1, "a message");
            });
            call("two messages at once", registered, size, [&] {
                constexpr size_t half = many / 2;
                must(weftGroupStart());
                for (size_t part : {size_t(0), half}) {
                    must(weftSend(mine.data() + part, half, weftInt32, 1 - rank, comm, nullptr));
                    must(weftRecv(got.data() + part, half, weftInt32, 1 - rank, comm, nullptr));
                }
                must(weftGroupEnd());
                must.check(got[half] == (1 - rank) * 1'000'000 + int(half), "the second message");
            });
            call("broadcast", registered, size, [&] {
                must(weftBroadcast(mine.data(), got.data(), many, weftInt32, 1, comm, nullptr));
                must.check(got[many - 1] == 1'000'000 + int(many) - 1, "a broadcast");
            });
            call("all-gather", registered, size, [&] {
                must(weftAllGather(mine.data(), got.data(), many, weftInt32, comm, nullptr));
                must.check(got[many - 1] == int(many) - 1 && got[many] == 1'000'000, "an all-gather");
            });
            call("all-reduce", registered, size / 2, [&] {
                must(weftAllReduce(mine.data(), got.data(), many, weftInt32, weftSum, comm, nullptr));
                must.check(got[3] == 1'000'006 && got[many - 1] == 1'000'000 + 2 * (int(many) - 1), "an all-reduce");
            });
            call("all-reduce in place", registered, size / 2, [&] {
                std::copy(mine.begin(), mine.end(), got.begin());
                must(weftAllReduce(got.data(), got.data(), many, weftInt32, weftSum, comm, nullptr));
                must.check(got[3] == 1'000'006 && got[many - 1] == 1'000'000 + 2 * (int(many) - 1), "one in place");
            });
        };
        calls(false);
        void* handle = nullptr;
        must(weftCommRegister(comm, got.data(), got.size() * sizeof(int), &handle));
        calls(true);
        must(weftCommDeregister(comm, handle));
        calls(false);
        return must.wrong;
    }));
}

TEST_CASE("when a call has failed, no late data comes to its registered memory", "[.of-ranks]") {
    const bool collective = GENERATE(false, true), aborts = GENERATE(false, true);
    INFO((collective ? "broadcast" : "message") << (aborts ? ", aborted" : ", after its timeout"));
    constexpr size_t many = 4'000'000;
    verbs::Settings settings = quick_settings();
    settings.path.timeout = 14;  // 67 ms: what was lost goes again after the failure
    settings.path.retries = 7;
    const WithSettings held(settings);
    std::atomic<bool> looked{false};
    no_errors(on_threads(2, "ring", [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        std::vector<int> mine(many, 7), got(many, -1);
        void* handle = nullptr;
        must(weftCommRegister(comm, got.data(), got.size() * sizeof(int), &handle));
        const auto call = [&] {
            if (collective) return weftBroadcast(mine.data(), got.data(), many, weftInt32, 1, comm, nullptr);
            return rank == 0 ? weftRecv(got.data(), many, weftInt32, 1, comm, nullptr)
                             : weftSend(mine.data(), many, weftInt32, 0, comm, nullptr);
        };
        must(call());  // makes the connection
        must.barrier();
        if (rank == 0) {
            weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
            config.timeoutMs = aborts ? -1 : 100;
            must(weftCommSetCallConfig(comm, &config));
            std::fill(got.begin(), got.end(), -1);
            watch(got);
            fake_verbs().run("lose 40 1000000");
        }
        if (!must.wrong.empty()) return must.wrong;
        std::thread aborter;
        if (rank == 0 && aborts)
            aborter = std::thread([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(100));
                (void)weftCommAbort(comm);
            });
        const weftResult_t result = call();
        const std::vector<int> after = got;
        if (aborter.joinable()) aborter.join();
        const char* wrong = result == weftSuccess ? "the call has not failed" : nullptr;
        if (rank == 0) {
            if (fake_verbs().count("landed") == 0) wrong = "nothing came to its memory before";
            const unsigned long resent = fake_verbs().count("resent");
            fake_verbs().run("no_faults");
            // The sender's device tries again, unless its link has ended.
            for (int turn = 0; turn < 40 && fake_verbs().count("resent") == resent; ++turn)
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            if (got != after) wrong = "late data has come";
            looked = true;
        } else if (!eventually([&] { return looked.load(); })) {
            wrong = "the other rank does not end";
        }
        return std::string(wrong ? wrong : "");
    }));
}

TEST_CASE("a put or get that fails is an error on both ranks, and its memory can be deregistered", "[.of-ranks]") {
    const bool puts = GENERATE(true, false), registered = GENERATE(true, false);
    INFO((puts ? "puts" : "gets") << (registered ? " with registered memory" : ""));
    std::string ids[2];
    no_errors(on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        std::vector<int> memory(count), mine = numbers(5);
        void* handle = nullptr;
        weftWindow_t window = nullptr;
        must(weftCommWindowRegister(comm, memory.data(), bytes, &window, WEFT_WIN_DEFAULT));
        if (registered) must(weftCommRegister(comm, mine.data(), bytes, &handle));
        weftResult_t result = weftSuccess;
        if (rank == 0) {
            must(weftPutSignal(mine.data(), 1, weftInt32, 1, window, 0, 0, 0, 0, comm, nullptr));
            fake_verbs().run("complete 12 20");
            for (int call = 0; call < 1'000 && result == weftSuccess; ++call)
                result = puts ? weftPut(mine.data(), count, weftInt32, 1, window, 0, comm, nullptr)
                              : weftGet(mine.data(), count, weftInt32, 1, window, 0, comm, nullptr);
        } else {
            weftWaitSignalDesc_t wanted{};
            wanted.opCnt = 2;
            result = weftWaitSignal(1, &wanted, comm, nullptr);
        }
        weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
        if (result != weftSuccess && weftGetLastErrorInfo(comm, &info) == weftSuccess) ids[rank] = info.id;
        must(weftCommWindowDeregister(comm, window));
        if (registered) must(weftCommDeregister(comm, handle));
        return must.wrong;
    }));
    for (const std::string& id : ids) CHECK(id == "verbs.completion");
}

TEST_CASE("if the user's memory cannot be registered, calls work without that", "[.of-ranks]") {
    no_errors(on_threads(2, nullptr, [&](weftComm_t comm, int rank) {
        Rank must{comm, rank};
        std::vector<int> mine = numbers(rank), got(count), memory(count);
        must(weftAllReduce(mine.data(), got.data(), count, weftInt32, weftSum, comm, nullptr));
        must.barrier();
        if (rank == 0) fake_verbs().run("memlock 1");
        must.barrier();
        void* handle = nullptr;
        weftWindow_t window = nullptr;
        must(weftCommRegister(comm, mine.data(), bytes, &handle));
        must(weftCommWindowRegister(comm, memory.data(), bytes, &window, WEFT_WIN_DEFAULT));
        must.barrier();
        if (rank == 0) fake_verbs().run("memlock 18446744073709551615");
        must.barrier();
        must(weftPutSignal(mine.data(), count, weftInt32, 1 - rank, window, 0, 0, 0, 0, comm, nullptr));
        must.await_signal(1 - rank);
        must.check(memory == numbers(1 - rank), "a put has other bytes");
        must(weftCommWindowDeregister(comm, window));
        must(weftCommDeregister(comm, handle));
        return must.wrong;
    }));
}

}  // namespace weft::internal::test
