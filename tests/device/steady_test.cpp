// steady_test.cpp: the driver functions that a repeated call on device memory uses: launches, events, and queries of
// addresses. It never allocates and never waits.
#include <algorithm>
#include <climits>
#include <map>

#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"

namespace weft::internal::test {

namespace {

constexpr int rounds = 100;

const char* const forbidden[] = {
    // Functions that allocate, map, make or load, and their ends
    "cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemFreeHost", "cuMemHostRegister", "cuMemHostUnregister",
    "cuMemCreate", "cuMemRelease", "cuMemMap", "cuMemUnmap", "cuMemSetAccess", "cuIpcGetMemHandle",
    "cuIpcOpenMemHandle", "cuIpcCloseMemHandle", "cuStreamCreateWithPriority", "cuStreamDestroy", "cuEventCreate",
    "cuEventDestroy", "cuGraphInstantiateWithFlags", "cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction",
    "cuFuncLoad", "cuDevicePrimaryCtxRetain", "cuCtxEnablePeerAccess",
    // Functions that wait for the device
    "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpy"};

std::map<std::string, int> counts() {
    std::map<std::string, int> all;
    for (const char* function : forbidden) all[function] = fake::calls(function);
    return all;
}

// `enqueue` once, and then often: nothing forbidden, and a launch for each rank.
void check_steady(const Ranks& ranks, const std::function<void()>& enqueue) {
    enqueue();
    ranks.finish();
    const std::map<std::string, int> before = counts();
    const int launches = fake::calls("cuLaunchKernelEx");
    for (int round = 0; round < rounds; ++round) enqueue();
    const std::map<std::string, int> after = counts();
    CHECK(fake::calls("cuLaunchKernelEx") - launches >= rounds * ranks.count());
    for (const auto& [function, count] : after) {
        INFO(function);
        CHECK(count - before.at(function) == 0);
    }
    ranks.finish();
    ranks.check_healthy();
}

constexpr size_t bytes = 1 << 20;

}  // namespace

TEST_CASE("a collective that was called before neither allocates nor waits", "[steady]") {
    const weftConfig_t config = with_algo(GENERATE(as<const char*>(), nullptr, "ring"));
    const Ranks ranks(spread(2), &config);
    const RankBuffers from(ranks, bytes), to(ranks, bytes);
    for (const size_t count : {size_t(1), size_t(30'000), bytes / 4})
        check_steady(ranks, [&] {
            ranks.group([&](int rank) {
                return weftAllReduce(from[rank], to[rank], count, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                     ranks.streams[size_t(rank)]->weft());
            });
        });
    for (const size_t count : {size_t(1), bytes / 8})
        check_steady(ranks, [&] {
            ranks.group([&](int rank) {
                return weftAllGather(from[rank], to[rank], count, weftFloat32, ranks.comms[size_t(rank)],
                                     ranks.streams[size_t(rank)]->weft());
            });
        });
}

TEST_CASE("nor do messages", "[steady]") {
    const Ranks ranks(spread(2));
    const RankBuffers from(ranks, bytes), to(ranks, bytes);
    for (const size_t count : {size_t(1), bytes / 4})
        check_steady(ranks, [&] {
            ranks.group([&](int rank) {
                return weftSendRecv(from[rank], count, 1 - rank, to[rank], count, 1 - rank, weftFloat32,
                                    ranks.comms[size_t(rank)], ranks.streams[size_t(rank)]->weft());
            });
        });
}

TEST_CASE("nor do small all-reduces of a group, which are joined", "[steady]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, bytes);
    check_steady(ranks, [&] {
        ranks.group([&](int rank) {
            weftResult_t result = weftSuccess;
            for (int call = 0; call < 100 && result == weftSuccess; ++call) {
                auto* const place = static_cast<float*>(buffers[rank]) + 100 * call;
                result = weftAllReduce(place, place, 100, weftFloat32, weftSum, ranks.comms[size_t(rank)],
                                       ranks.streams[size_t(rank)]->weft());
            }
            return result;
        });
    });
}

TEST_CASE("nor do puts, and waits for their signals", "[steady]") {
    const Ranks ranks(spread(2));
    const RankBuffers from(ranks, bytes), memory(ranks, bytes);
    std::vector<weftWindow_t> windows(2);
    ranks.group([&](int rank) {
        return weftCommWindowRegister(ranks.comms[size_t(rank)], memory[rank], bytes, &windows[size_t(rank)],
                                      WEFT_WIN_DEFAULT);
    });
    check_steady(ranks, [&] {
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            const weftWaitSignalDesc_t one{1, 1 - rank, 0, 0};
            const weftResult_t put = weftPutSignal(from[rank], 1000, weftFloat32, 1 - rank, windows[r], 0, 0, 0, 0,
                                                   ranks.comms[r], ranks.streams[r]->weft());
            return put != weftSuccess ? put : weftWaitSignal(1, &one, ranks.comms[r], ranks.streams[r]->weft());
        });
    });
    ranks.group([&](int rank) { return weftCommWindowDeregister(ranks.comms[size_t(rank)], windows[size_t(rank)]); });
}

TEST_CASE("nor does a call on another stream than the one before", "[steady]") {
    const Ranks ranks(spread(2));
    const RankBuffers buffers(ranks, bytes);
    std::vector<std::unique_ptr<Stream>> others;
    for (const int device : ranks.placing) others.push_back(std::make_unique<Stream>(device));
    bool other = false;
    check_steady(ranks, [&] {
        other = !other;
        ranks.group([&](int rank) {
            const auto r = size_t(rank);
            return weftAllReduce(buffers[rank], buffers[rank], 1000, weftFloat32, weftSum, ranks.comms[r],
                                 other ? others[r]->weft() : ranks.streams[r]->weft());
        });
    });
    for (const auto& stream : others) stream->finish();
}

namespace {

// The driver calls of rank 0 for an all-reduce that was called before, from a thread in which its context is current.
int driver_calls(const Ranks& ranks, const void* from, void* to) {
    const DeviceBuffer other(ranks.placing[1], 4000);
    const auto call = [&](size_t rank, const void* send, void* receive) {
        demand(
            weftAllReduce(send, receive, 1000, weftFloat32, weftSum, ranks.comms[rank], ranks.streams[rank]->weft()));
    };
    const Current current(ranks.placing[0]);
    int least = INT_MAX;
    for (int round = 0; round < 5; ++round) {
        const int before = fake::calls();
        call(0, from, to);
        least = std::min(least, fake::calls() - before);
        call(1, other.data(), other.data());
    }
    ranks.finish();
    ranks.check_healthy();
    return least;
}

// Of buffers that differ, and in place.
void check_driver_calls(int most) {
    using Kind = DeviceBuffer::Kind;
    const Ranks ranks(spread(2));
    for (const Kind kind : {Kind::plain, Kind::weft, Kind::pieces}) {
        INFO(int(kind));
        const DeviceBuffer from(ranks.placing[0], 4000, 0, kind), to(ranks.placing[0], 4000, 0, kind);
        CHECK(driver_calls(ranks, from.data(), to.data()) <= most);
        CHECK(driver_calls(ranks, to.data(), to.data()) <= most);
    }
}

}  // namespace

TEST_CASE("a warm all-reduce calls the driver eight times at most", "[counted]") { check_driver_calls(8); }

TEST_CASE("and five times if pointers are trusted and no event follows", "[trusted]") { check_driver_calls(5); }

TEST_CASE("if pointers are trusted, calls have the same results, and calls without a stream are still the host's",
          "[trusted]") {
    std::mt19937 random(15);
    const Ranks ranks(spread(3));
    for (const size_t count : {size_t(1), size_t(1000), size_t(300'000)})
        for (const bool in_place : {false, true})
            CHECK(compare(ranks, {weftInt32, weftSum, count, in_place, 0}, random) == "");
    ranks.check_healthy();
}

}  // namespace weft::internal::test
