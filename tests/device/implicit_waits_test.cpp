// implicit_waits_test.cpp: functions of the driver that wait for the device, while a kernel there waits for another rank.
// The order of calls decides whether that ends (docs/guide/gpu.md, Several communicators).
#include <cstring>
#include <thread>

#include "perf/pattern_kernels.hpp"
#include "tests/device/ranks.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/patience.hpp"

namespace weft::internal::test {

namespace {

constexpr int64_t deadline_ms = 300;

// While it lives, allocating and registering wait for the device.
struct WaitingDriver {
    static void set(const char* on) {
        for (const char* function : {"cuMemAlloc", "cuMemHostAlloc", "cuMemHostRegister"})
            fake::add_setting(std::string("sync ") + function + " " + on);
    }
    WaitingDriver() { set("1"); }
    ~WaitingDriver() { set("0"); }
};

weftResult_t reduce(const Ranks& ranks, const RankBuffers& buffers, int rank) {
    return weftAllReduce(buffers[rank], buffers[rank], 1000, weftUint32, weftSum, ranks.comms[size_t(rank)],
                         ranks.streams[size_t(rank)]->weft());
}

// Each rank's thread calls the first communicator, and makes a second one. in_order: in this order on both ranks.
// Returns the second's result and the first's state.
std::pair<weftResult_t, weftResult_t> call_and_join(bool in_order, int64_t timeout_ms) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = timeout_ms;
    const Ranks ranks(spread(2), &config);
    const RankBuffers buffers(ranks, 4000);
    const WaitingDriver waits;
    weftUniqueId id;
    demand(weftGetUniqueId(&id));
    weftComm_t more[2] = {};
    weftResult_t joined[2] = {};
    check_on_threads(2, [&](int rank) {
        const auto r = size_t(rank);
        const Current current(ranks.placing[r]);
        const auto join = [&] {
            // Rank 0's kernel waits for rank 1 when it joins.
            if (rank == 1 && !in_order) (void)eventually([] { return fake::running_blocks(0) > 0; });
            joined[r] = weftCommInitRank(&more[r], 2, id, rank);
        };
        if (rank == 1 && !in_order) join();
        (void)reduce(ranks, buffers, rank);
        if (rank == 0 || in_order) join();
    });
    ranks.finish();
    weftResult_t state = weftSuccess;
    demand(weftCommGetAsyncError(ranks.comms[0], &state));
    for (weftComm_t comm : more)
        if (comm) demand(weftCommDestroy(comm));
    return {joined[0], state};
}

}  // namespace

TEST_CASE("joining waits for a kernel that waits for a rank, which must have called before it joins, too",
          "[waits][fake]") {
    CHECK(call_and_join(true, 600'000) == std::pair(weftSuccess, weftSuccess));
    // In the other order the kernel must end first, by its deadline.
    CHECK(call_and_join(false, deadline_ms).second == weftTimeout);
}

TEST_CASE("the program's first launch of a kernel with a large stack waits for kernels that wait for a rank",
          "[waits][fake]") {
    fake::add_setting("stack weft_ 1024; stack " + std::string(perf::fill_entry_point) + " 4096");
    uint32_t elf = 0x464c457f;
    CUlibrary library;
    CUkernel kernel;
    demand(cuLibraryLoadData(&library, &elf, nullptr, nullptr, 0, nullptr, nullptr, 0));
    demand(cuLibraryGetKernel(&kernel, library, perf::fill_entry_point));
    for (const bool last : {false, true}) {
        weftConfig_t config = WEFT_CONFIG_INITIALIZER;
        config.timeoutMs = last ? 600'000 : deadline_ms;
        const Ranks ranks(spread(2), &config);
        const RankBuffers buffers(ranks, 4000);
        // On a device whose context has no room for it yet.
        const size_t rank = last ? 1 : 0;
        const Current current(ranks.placing[rank]);
        const Stream own(ranks.placing[rank]);
        perf::PatternArguments arguments{};
        arguments.element_bytes = 1;
        void* parameters[] = {&arguments};
        CUlaunchConfig launch{};
        launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ =
            1;
        launch.hStream = own.handle;
        demand(reduce(ranks, buffers, 0));
        if (last) demand(reduce(ranks, buffers, 1));
        demand(cuLaunchKernelEx(&launch, reinterpret_cast<CUfunction>(kernel), parameters, nullptr));
        if (!last) (void)reduce(ranks, buffers, 1);
        ranks.finish();
        own.finish();
        weftResult_t state = weftSuccess;
        demand(weftCommGetAsyncError(ranks.comms[0], &state));
        CHECK(state == (last ? weftSuccess : weftTimeout));
    }
    fake::add_setting("stack weft_ 0; stack " + std::string(perf::fill_entry_point) + " 0");
}

}  // namespace weft::internal::test
