// split_bench.cpp: how long a split takes, for people: `split_bench threads|processes RANKS [TIMES]`. In each round the
// ranks meet at a barrier, split into halves (or all together: a duplicate) and destroy what they got; the time is of
// rank 0's call.
#include <sys/wait.h>
#include <unistd.h>
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

void check(weftResult_t result) {
    if (result == weftSuccess) return;
    fprintf(stderr, "%s\n", weftGetLastError(nullptr));
    _exit(1);
}

double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(weftComm_t comm, int rank, int times, const char* what, int color) {
    std::vector<double> made, ended;
    for (int i = 0; i < times; ++i) {
        weftComm_t child = nullptr;
        check(weftBarrier(comm, nullptr));
        const double begun = now_us();
        check(weftCommSplit(comm, color, 0, &child, nullptr));
        made.push_back(now_us() - begun);
        check(weftBarrier(comm, nullptr));
        const double leaving = now_us();
        check(weftCommDestroy(child));
        ended.push_back(now_us() - leaving);
    }
    if (rank != 0) return;
    std::sort(made.begin(), made.end());
    std::sort(ended.begin(), ended.end());
    printf("%s: median %.0f us, 90%% %.0f us, least %.0f us; to destroy it %.0f us\n", what, made[made.size() / 2],
           made[made.size() * 9 / 10], made[0], ended[ended.size() / 2]);
}

void take_part(const weftUniqueId& id, int ranks, int rank, int times) {
    weftComm_t comm = nullptr;
    check(weftCommInitRank(&comm, ranks, id, rank));
    measure(comm, rank, times, "split into halves", rank % 2);
    measure(comm, rank, times, "duplicate", 0);
    check(weftCommDestroy(comm));
    fflush(stdout);
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) return fprintf(stderr, "usage: split_bench threads|processes RANKS [TIMES]\n"), 2;
    const bool processes = strcmp(arguments[1], "processes") == 0;
    const int ranks = atoi(arguments[2]), times = count > 3 ? atoi(arguments[3]) : 200;
    weftUniqueId id;
    if (!processes) {
        check(weftGetUniqueId(&id));
        std::vector<std::thread> threads;
        for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&, rank] { take_part(id, ranks, rank, times); });
        for (std::thread& thread : threads) thread.join();
        return 0;
    }
    // The library is not used before the processes are made: rank 0 makes the id.
    int pipes[2];
    if (pipe(pipes) != 0) return 1;
    for (int rank = 0; rank < ranks; ++rank) {
        if (fork() != 0) continue;
        if (rank == 0) {
            check(weftGetUniqueId(&id));
            for (int i = 1; i < ranks; ++i)
                if (write(pipes[1], &id, sizeof id) != sizeof id) _exit(1);
        } else if (read(pipes[0], &id, sizeof id) != sizeof id) {
            _exit(1);
        }
        take_part(id, ranks, rank, times);
        _exit(0);
    }
    for (int rank = 0; rank < ranks; ++rank) wait(nullptr);
    return 0;
}
