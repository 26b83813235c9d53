// init_bench.cpp: how long ranks that are a host each need to meet over TCP: `init_bench threads|processes RANKS
// [TIMES]`. Prints milliseconds from the last rank's call to the last rank's return, and what a first small sum takes
// then. Not a test: run by hand.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.hpp"
#include "weft/weft.hpp"

namespace {

struct Shared {
    weftUniqueId id;
    std::atomic<int> failed;
    pthread_barrier_t start;
    bool sum;
    struct {
        int64_t called, returned, summed, left;
    } times[4096];
};

void take_part(Shared& shared, int ranks, int rank) {
    pthread_barrier_wait(&shared.start);
    weftComm_t comm = nullptr;
    shared.times[rank].called = weft::now_us();
    if (weftCommInitRank(&comm, ranks, shared.id, rank) != weftSuccess) {
        if (shared.failed++ < 3) fprintf(stderr, "rank %d: %s\n", rank, weftGetLastError(nullptr));
        return;
    }
    shared.times[rank].returned = weft::now_us();
    int value = ranks;
    if (shared.sum) value = 1;
    if ((shared.sum && weftAllReduce(&value, &value, 1, weftInt32, weftSum, comm, nullptr) != weftSuccess) ||
        value != ranks) {
        if (shared.failed++ < 3) fprintf(stderr, "rank %d: %d, %s\n", rank, value, weftGetLastError(nullptr));
        return;
    }
    shared.times[rank].summed = weft::now_us();
    weftCommDestroy(comm);
    shared.times[rank].left = weft::now_us();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const bool processes = std::string(argv[1]) == "processes";
    const int ranks = std::min(atoi(argv[2]), 4096), times = argc > 3 ? atoi(argv[3]) : 3;
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    setenv("WEFT_TRANSPORTS", "tcp", 0);
    auto* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto& shared = *new (memory) Shared{};
    shared.sum = argc <= 4;
    for (int time = 0; time < times; ++time) {
        shared.failed = 0;
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_barrier_init(&shared.start, &attributes, unsigned(ranks));
        // The library is not used here before the children are made: rank 0 makes the id.
        std::vector<std::thread> threads;
        std::vector<pid_t> children;
        for (int rank = 0; rank < ranks; ++rank) {
            const auto run = [&, rank] {
                if (rank == 0) weftGetUniqueId(&shared.id);
                take_part(shared, ranks, rank);
            };
            if (!processes) {
                threads.emplace_back(run);
            } else if (const pid_t child = fork(); child == 0) {
                run();
                _exit(0);
            } else {
                children.push_back(child);
            }
        }
        for (std::thread& thread : threads) thread.join();
        for (const pid_t child : children) waitpid(child, nullptr, 0);
        int64_t called = 0, returned = 0, summed = 0, left = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            called = std::max(called, shared.times[rank].called);
            returned = std::max(returned, shared.times[rank].returned);
            summed = std::max(summed, shared.times[rank].summed);
            left = std::max(left, shared.times[rank].left);
        }
        printf("%d ranks as %s: %.1f ms to meet, %.1f ms for the first sum, %.1f ms to leave, %d failed\n", ranks,
               argv[1], double(returned - called) / 1e3, double(summed - returned) / 1e3, double(left - summed) / 1e3,
               shared.failed.load());
        fflush(stdout);
    }
    return 0;
}
