// init_bench.cpp: the time that ranks need for rendezvous: `init_bench threads|processes RANKS [TIMES [tcp|shm
// [nosum]]]`. Over TCP each rank is a host. It prints milliseconds from the last rank's call to the last rank's return,
// and the time of a first small sum. For processes it also prints the communicator's memory. Not a test: run by hand.
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
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "src/base/clock.hpp"
#include "weft/weft.hpp"

namespace {

struct Shared {
    weftUniqueId id;
    std::atomic<int> failed;
    pthread_barrier_t start, met;
    bool sum, processes;
    struct {
        int64_t called, returned, measured, summed, left;
    } times[4096];
    struct {
        int64_t held_bytes, resident_kib, share_kib;
    } memory[4096];
};

// A number of KiB of /proc/self/smaps_rollup.
int64_t own_kib(const std::string& name) {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);)
        if (line.rfind(name, 0) == 0) return atoll(line.c_str() + name.size());
    return 0;
}

// The communicator, or null.
weftComm_t meet(Shared& shared, int ranks, int rank) {
    weftComm_t comm = nullptr;
    auto& memory = shared.memory[rank];
    if (shared.processes) memory = {0, -own_kib("Rss:"), -own_kib("Pss:")};
    pthread_barrier_wait(&shared.start);
    shared.times[rank].called = weft::internal::now_us();
    if (weftCommInitRank(&comm, ranks, shared.id, rank) != weftSuccess && shared.failed++ < 3)
        fprintf(stderr, "rank %d: %s\n", rank, weftGetLastError(nullptr));
    shared.times[rank].returned = weft::internal::now_us();
    pthread_barrier_wait(&shared.met);
    uint64_t held = 0;
    if (comm) (void)weftCommMemStats(comm, weftMemTotal, &held);
    memory.held_bytes = int64_t(held);
    if (shared.processes) {
        memory.resident_kib += own_kib("Rss:");
        memory.share_kib += own_kib("Pss:");
    }
    pthread_barrier_wait(&shared.met);
    return comm;
}

void take_part(Shared& shared, int ranks, int rank) {
    weftComm_t comm = meet(shared, ranks, rank);
    if (!comm) return;
    shared.times[rank].measured = weft::internal::now_us();
    int value = shared.sum ? 1 : ranks;
    if ((shared.sum && weftAllReduce(&value, &value, 1, weftInt32, weftSum, comm, nullptr) != weftSuccess) ||
        value != ranks) {
        if (shared.failed++ < 3) fprintf(stderr, "rank %d: %d, %s\n", rank, value, weftGetLastError(nullptr));
        return;
    }
    shared.times[rank].summed = weft::internal::now_us();
    (void)weftCommDestroy(comm);
    shared.times[rank].left = weft::internal::now_us();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const int ranks = std::min(atoi(argv[2]), 4096), times = argc > 3 ? atoi(argv[3]) : 3;
    rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const std::string transport = argc > 4 ? argv[4] : "tcp";
    setenv("WEFT_TRANSPORTS", transport.c_str(), 0);
    auto* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto& shared = *new (memory) Shared{};
    shared.sum = argc <= 5;
    const bool processes = shared.processes = std::string(argv[1]) == "processes";
    for (int time = 0; time < times; ++time) {
        shared.failed = 0;
        pthread_barrierattr_t attributes;
        pthread_barrierattr_init(&attributes);
        pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        for (pthread_barrier_t* barrier : {&shared.start, &shared.met})
            pthread_barrier_init(barrier, &attributes, unsigned(ranks));
        // The library is not used here before the children are made: rank 0 makes the id.
        std::vector<std::thread> threads;
        std::vector<pid_t> children;
        for (int rank = 0; rank < ranks; ++rank) {
            const auto run = [&, rank] {
                if (rank == 0) (void)weftGetUniqueId(&shared.id);
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
        int64_t called = 0, returned = 0, measured = 0, summed = 0, left = 0;
        int64_t held_bytes = 0, resident_kib = 0, share_kib = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            called = std::max(called, shared.times[rank].called);
            returned = std::max(returned, shared.times[rank].returned);
            measured = std::max(measured, shared.times[rank].measured);
            summed = std::max(summed, shared.times[rank].summed);
            left = std::max(left, shared.times[rank].left);
            held_bytes = std::max(held_bytes, shared.memory[rank].held_bytes);
            resident_kib = std::max(resident_kib, shared.memory[rank].resident_kib);
            share_kib += shared.memory[rank].share_kib;
        }
        printf("%d ranks as %s over %s: %.1f ms to meet, %.1f ms for the first sum, %.1f ms to leave, %d failed\n",
               ranks, argv[1], transport.c_str(), double(returned - called) / 1e3, double(summed - measured) / 1e3,
               double(left - summed) / 1e3, shared.failed.load());
        // A shared page counts in full in what is resident, and as each process's part of it in the share.
        if (processes)
            printf(
                "  before the first sum: %.2f MiB held by the rank that holds most, resident %.2f MiB more in the "
                "largest process, the ranks' shares %.2f MiB more in the mean\n",
                double(held_bytes) / (1 << 20), double(resident_kib) / 1024, double(share_kib) / 1024 / ranks);
        fflush(stdout);
    }
    return 0;
}
