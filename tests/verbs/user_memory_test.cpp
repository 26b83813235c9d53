// user_memory_test.cpp: calls of the C API on memory that is registered with the transport over verbs. Each rank is a
// thread, and a host of its own (WEFT_TRANSPORTS=verbs). Over the fake libibverbs, which counts the bytes that its
// requests take from a range.
#include <algorithm>
#include <atomic>
#include <numeric>

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
