// plugin_worker.cpp: one rank of plugin_test: some collectives and messages, compared with serial results. It prints
// `rank R: ok`, or the id and the sentence of its error. ONLY_RANK names the only rank with the plugin, or with RDMA.
// WRONG_RANK is the only rank that keeps WEFT_IB_DEVICES. KILLED_RANK kills itself after the first calls. WINDOWS is the
// number of windows that come after them, one after the other in the same memory. It prints whether the memory is whole.
// With GETS rank 0 then gets twice from rank 1 into its own window, until that fails.
#include <dlfcn.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "weft/weft.h"

// The number of allocations of this thread that fail next, in the plugin (bad_plugin.c).
static thread_local int* failing_allocations = nullptr;

void* operator new(size_t bytes) {
    if (failing_allocations && *failing_allocations > 0 && (*failing_allocations)-- > 0) throw std::bad_alloc();
    if (void* const got = malloc(bytes ? bytes : 1)) return got;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

static int rank = -1;

static void must(weftResult_t result, weftComm_t comm) {
    if (result == weftSuccess) return;
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(comm, &info);
    printf("rank %d: %s: %s\n", rank, info.id, weftGetLastError(comm));
    exit(0);
}

static float value_of(int of_rank, size_t index) {
    return float((unsigned(of_rank) * 7919u + unsigned(index) * 31u) % 1000u);
}

// Each rank puts into the next one's memory, and the windows take two buffers in turns.
static void put_into_windows(weftComm_t comm, int ranks, int windows) {
    constexpr size_t count = 4000;
    std::vector<float> memory[2] = {std::vector<float>(count), std::vector<float>(count)}, source(count);
    const int left = (rank + ranks - 1) % ranks;
    weftWindow_t window = nullptr;
    const weftWaitSignalDesc_t from_left = {1, left, 0, 0};
    // Of a window: all elements are of this number.
    const auto holds = [&](int number) {
        return std::all_of(memory[number % 2].begin(), memory[number % 2].end(),
                           [&](float each) { return each == value_of(left, size_t(number)); });
    };
    for (int number = 0; number < windows; ++number) {
        std::fill(source.begin(), source.end(), value_of(rank, size_t(number)));
        weftResult_t result =
            weftCommWindowRegister(comm, memory[number % 2].data(), count * sizeof(float), &window, 0);
        if (result == weftSuccess)
            result =
                weftPutSignal(source.data(), count, weftFloat32, (rank + 1) % ranks, window, 0, 0, 0, 0, comm, nullptr);
        if (result == weftSuccess) result = weftWaitSignal(1, &from_left, comm, nullptr);
        if (result == weftSuccess && !holds(number)) printf("rank %d: memory is damaged\n", rank);
        if (result == weftSuccess) result = weftCommWindowDeregister(comm, window);
        if (result != weftSuccess) {
            // Of a put that failed there may be a part; the other buffer has what came before.
            printf("rank %d: memory is %s\n", rank, number == 0 || holds(number - 1) ? "whole" : "damaged");
            must(result, comm);
        }
    }
    const weftResult_t ended = weftPut(source.data(), count, weftFloat32, (rank + 1) % ranks, window, 0, comm, nullptr);
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(comm, &info);
    printf("rank %d: ended window: %s\n", rank, ended == weftSuccess ? "no error" : info.id);
    printf("rank %d: memory is %s\n", rank, holds(windows - 1) && holds(windows - 2) ? "whole" : "damaged");
}

static void get_twice(weftComm_t comm) {
    constexpr size_t count = 4000;
    std::vector<float> memory(2 * count);
    weftWindow_t window = nullptr;
    must(weftCommWindowRegister(comm, memory.data(), memory.size() * sizeof(float), &window, 0), comm);
    if (void* const plugin = dlopen(getenv("WEFT_TRANSPORT_PLUGIN"), RTLD_NOW | RTLD_NOLOAD))
        failing_allocations = static_cast<int*>(dlsym(plugin, "failing_allocations"));
    const weftWaitSignalDesc_t never = {1, 0, 0, 0};
    weftResult_t result = weftSuccess;
    for (int turn = 0; turn < 2 && result == weftSuccess; ++turn)
        result = rank == 0 ? weftGet(memory.data(), count, weftFloat32, 1, window, count * sizeof(float), comm, nullptr)
                           : weftWaitSignal(1, &never, comm, nullptr);
    weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER;
    (void)weftGetLastErrorInfo(nullptr, &info);
    printf("rank %d: last get or wait: %s\n", rank, result == weftSuccess ? "no error" : info.id);
    must(weftCommWindowDeregister(comm, window), comm);
}

int main() {
    rank = atoi(getenv("WEFT_RANK"));
    const char* only = getenv("ONLY_RANK");
    const char* killed = getenv("KILLED_RANK");
    if (only && atoi(only) != rank) {
        unsetenv("WEFT_TRANSPORT_PLUGIN");
        setenv("WEFT_VERBS_LIBRARY", "none", 1);
        setenv("WEFT_NCCL_NET_PLUGIN", "none", 1);
        const char* transports = getenv("WEFT_TRANSPORTS");
        if (transports && transports[0] == 'u') setenv("WEFT_TRANSPORTS", "tcp", 1);  // ucx,tcp
    }
    const char* wrong = getenv("WRONG_RANK");
    if (wrong && atoi(wrong) != rank) unsetenv("WEFT_IB_DEVICES");
    const char* odd = getenv("ODD_RANK");
    if (odd && atoi(odd) == rank) setenv("FAKE_IBVERBS", getenv("ODD_WORLD"), 1);
    weftComm_t comm = nullptr;
    int ranks = 0;
    must(weftCommInitFromEnvironment(&comm, nullptr), nullptr);
    must(weftCommCount(comm, &ranks), comm);
    bool right = true;
    for (const size_t count : {size_t(1), size_t(1001), size_t(300'007)}) {
        std::vector<float> mine(count), sum(count), got(count);
        for (size_t i = 0; i < count; ++i) mine[i] = value_of(rank, i);
        for (int round = 0; round < 4; ++round) {
            must(weftAllReduce(mine.data(), sum.data(), count, weftFloat32, weftSum, comm, nullptr), comm);
            for (size_t i = 0; i < count; ++i) {
                float expected = 0;
                for (int each = 0; each < ranks; ++each) expected += value_of(each, i);
                right = right && sum[i] == expected;
            }
        }
        must(weftGroupStart(), comm);
        must(weftSend(mine.data(), count, weftFloat32, (rank + 1) % ranks, comm, nullptr), comm);
        must(weftRecv(got.data(), count, weftFloat32, (rank + ranks - 1) % ranks, comm, nullptr), comm);
        must(weftGroupEnd(), comm);
        for (size_t i = 0; i < count; ++i) right = right && got[i] == value_of((rank + ranks - 1) % ranks, i);
        if (killed && atoi(killed) == rank) raise(SIGKILL);
    }
    if (getenv("GETS")) get_twice(comm);
    if (const char* windows = getenv("WINDOWS")) put_into_windows(comm, ranks, atoi(windows));
    must(weftCommDestroy(comm), nullptr);
    printf("rank %d: %s\n", rank, right ? "ok" : "wrong data");
}
