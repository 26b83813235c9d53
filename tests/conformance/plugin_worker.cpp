// plugin_worker.cpp: one rank of plugin_test: some collectives and messages, compared with serial results. It prints
// `rank R: ok`, or the id and the sentence of its error. ONLY_RANK names the only rank with the plugin, or with RDMA.
// WRONG_RANK is the only rank that keeps WEFT_IB_DEVICES. KILLED_RANK kills itself after the first calls.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "weft/weft.h"

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
    must(weftCommDestroy(comm), nullptr);
    printf("rank %d: %s\n", rank, right ? "ok" : "wrong data");
}
