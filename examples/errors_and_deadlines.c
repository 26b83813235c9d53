/* errors_and_deadlines.c: the error of a failed call, a late rank, and a new communicator after it.
 *
 * weft run -n 4 ./errors_and_deadlines */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "check.h"

static void join(weftComm_t* comm, int64_t deadline_ms) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    config.timeoutMs = deadline_ms; /* for calls of this communicator; otherwise WEFT_TIMEOUT_MS, ten minutes */
    /* Every call makes the next communicator of the job. */
    CHECK(weftCommInitFromEnvironment(comm, &config));
}

int main(void) {
    weftComm_t comm;
    weftResult_t result, error;
    float value = 1, sum = 0;
    const struct timespec moment = {0, 1000000};
    int ranks, rank;

    join(&comm, 500);
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));
    EXPECT(ranks > 1);

    /* A wrong argument: the message says what to change. The other ranks do not notice, and the communicator stays
     * usable. */
    result = weftAllReduce(NULL, &sum, 1, weftFloat32, weftSum, comm, NULL);
    EXPECT(result == weftInvalidArgument && strstr(weftGetLastError(comm), "sendbuff is NULL"));

    /* The last rank is late. When the others' deadline passes, every rank returns an error. */
    if (rank == ranks - 1) {
        do {
            nanosleep(&moment, NULL);
            CHECK(weftCommGetAsyncError(comm, &error));
        } while (error == weftSuccess);
    }
    result = weftAllReduce(&value, &sum, 1, weftFloat32, weftSum, comm, NULL);
    EXPECT(result != weftSuccess);
    EXPECT(rank == ranks - 1 || (result == weftTimeout && strstr(weftGetLastError(comm), "rank")));
    printf("rank %d: %s: %s\n", rank, weftGetErrorString(result), weftGetLastError(comm));

    /* The communicator is dead now: every call returns its first error. The process may make a new communicator. */
    EXPECT(weftBarrier(comm, NULL) == result);
    CHECK(weftCommDestroy(comm));
    join(&comm, 60 * 1000);
    CHECK(weftAllReduce(&value, &sum, 1, weftFloat32, weftSum, comm, NULL));
    EXPECT(sum == (float)ranks);
    CHECK(weftCommDestroy(comm));
    return 0;
}
