/* threads_test.c: threads as ranks, several communicators at once, two threads in one communicator, abort from outside.
 */
#include "check.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>

enum { ranks = 4, calls = 300 };

struct rank_thread {
    pthread_t thread;
    weftComm_t comm;
    weftUniqueId id;
    int rank, wrong;
    weftResult_t result;
    char sentence[1000];
};

static void each_rank(struct rank_thread* all, int count, void* (*body)(void*)) {
    int rank;
    for (rank = 0; rank < count; ++rank) {
        all[rank].rank = rank;
        CHECK(pthread_create(&all[rank].thread, NULL, body, &all[rank]) == 0);
    }
    for (rank = 0; rank < count; ++rank) pthread_join(all[rank].thread, NULL);
}

static void* join_sum_and_leave(void* argument) {
    struct rank_thread* self = argument;
    weftComm_t comm = NULL;
    int call;
    CHECK_OK(weftCommInitRank(&comm, ranks, self->id, self->rank));
    for (call = 0; call < calls; ++call) {
        double value = self->rank + call;
        CHECK_OK(weftAllReduce(&value, &value, 1, weftFloat64, weftSum, comm, NULL));
        self->wrong += value != ranks * call + ranks * (ranks - 1) / 2;
    }
    CHECK_OK(weftCommDestroy(comm));
    return NULL;
}

static void threads_as_ranks(void) {
    struct rank_thread all[ranks] = {0};
    int rank;
    CHECK_OK(weftGetUniqueId(&all[0].id));
    for (rank = 1; rank < ranks; ++rank) all[rank].id = all[0].id;
    each_rank(all, ranks, join_sum_and_leave);
    for (rank = 0; rank < ranks; ++rank) CHECK(all[rank].wrong == 0);
}

static void* own_communicator(void* argument) {
    struct rank_thread* self = argument;
    weftComm_t comms[3];
    int call, rank;
    CHECK_OK(weftCommInitAll(comms, 3, NULL));
    for (call = 0; call < calls; ++call) {
        int values[3] = {1, 20, 300};
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < 3; ++rank)
            CHECK_OK(weftAllReduce(&values[rank], &values[rank], 1, weftInt32, weftSum, comms[rank], NULL));
        CHECK_OK(weftGroupEnd());
        self->wrong += values[0] != 321 || values[1] != 321 || values[2] != 321;
    }
    for (rank = 0; rank < 3; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
    return NULL;
}

static void communicators_side_by_side(void) {
    struct rank_thread all[ranks] = {0};
    int rank;
    each_rank(all, ranks, own_communicator);
    for (rank = 0; rank < ranks; ++rank) CHECK(all[rank].wrong == 0);
}

/* Calls and blocks there, as long as rank 1 does not call; again if the look of somebody_is_inside() was in the way. */
static void* blocked_call(void* argument) {
    struct rank_thread* self = argument;
    float value = 1;
    do {
        self->result = weftAllReduce(&value, &value, 1, weftFloat32, weftSum, self->comm, NULL);
        snprintf(self->sentence, sizeof self->sentence, "%s", weftGetLastError(NULL));
    } while (self->result == weftInvalidUsage && strstr(self->sentence, "another thread is inside"));
    return NULL;
}

/* Until the other thread is inside: a call that needs the communicator alone is refused. Bounded only against a hang.
 */
static int somebody_is_inside(weftComm_t comm) {
    char text[8];
    long tries;
    for (tries = 0; tries < 100000000; ++tries) {
        if (weftCommExplain(comm, 1, weftFloat32, weftSum, text, sizeof text, NULL) == weftInvalidUsage) return 1;
        sched_yield();
    }
    return 0;
}

static void two_threads_in_one(void) {
    weftComm_t comms[2];
    struct rank_thread other = {0};
    weftResult_t error;
    weftRedOp_t op;
    float value = 1;
    void* handle;
    int number;
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    other.comm = comms[0];
    CHECK(pthread_create(&other.thread, NULL, blocked_call, &other) == 0);
    CHECK(somebody_is_inside(comms[0]));
    CHECK_ERROR(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comms[0], NULL), "usage.threads");
    CHECK_ERROR(weftCommDestroy(comms[0]), "usage.threads");
    CHECK_ERROR(weftRedOpCreatePreMulSum(&op, &value, weftFloat32, weftScalarHostImmediate, comms[0]), "usage.threads");
    CHECK_ERROR(weftCommRegister(comms[0], &value, sizeof value, &handle), "usage.threads");
    CHECK_OK(weftGroupStart());
    CHECK_ERROR(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comms[0], NULL), "usage.threads");
    CHECK_OK(weftGroupEnd());
    /* Thread-safe functions go on working. */
    CHECK_OK(weftCommCount(comms[0], &number));
    CHECK_OK(weftCommUserRank(comms[0], &number));
    CHECK_OK(weftCommGetAsyncError(comms[0], &error));
    CHECK(error == weftSuccess);
    /* The refused calls did not happen: the first is still in order. */
    CHECK_OK(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comms[1], NULL));
    CHECK(value == 2);
    pthread_join(other.thread, NULL);
    CHECK(other.result == weftSuccess);
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_OK(weftCommDestroy(comms[1]));
}

static void abort_while_blocked(void) {
    weftComm_t comms[2];
    struct rank_thread other = {0};
    weftResult_t error = weftSuccess;
    float value = 1;
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    other.comm = comms[0];
    CHECK(pthread_create(&other.thread, NULL, blocked_call, &other) == 0);
    CHECK(somebody_is_inside(comms[0]));
    CHECK_OK(weftCommAbort(comms[0]));
    pthread_join(other.thread, NULL);
    CHECK(other.result == weftInvalidUsage); /* here; on the other ranks it is a remote error */
    CHECK_TEXT(other.sentence, "weftCommAbort");
    CHECK_OK(weftCommGetAsyncError(comms[1], &error));
    CHECK(error == weftRemoteError);
    CHECK_ERROR(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, comms[1], NULL), "abort.remote");
    CHECK_OK(weftCommDestroy(comms[1]));
}

struct group_thread {
    pthread_t thread;
    weftComm_t comms[2];
    int made; /* its calls */
    weftResult_t result;
};

static void* blocked_group(void* argument) {
    struct group_thread* self = argument;
    float values[2] = {1, 2};
    int each;
    CHECK_OK(weftGroupStart());
    for (each = 0; each < 2; ++each)
        CHECK_OK(weftAllReduce(&values[each], &values[each], 1, weftFloat32, weftSum, self->comms[each], NULL));
    __atomic_store_n(&self->made, 1, __ATOMIC_RELEASE);
    self->result = weftGroupEnd();
    return NULL;
}

/* No abort waits for the other communicator, which the same thread aborts next. */
static void abort_of_each_in_a_group(void) {
    weftComm_t one[2], other[2];
    struct group_thread blocked = {0};
    const struct timespec moment = {0, 50000000};
    CHECK_OK(weftCommInitAll(one, 2, NULL));
    CHECK_OK(weftCommInitAll(other, 2, NULL));
    blocked.comms[0] = one[0];
    blocked.comms[1] = other[0];
    CHECK(pthread_create(&blocked.thread, NULL, blocked_group, &blocked) == 0);
    while (!__atomic_load_n(&blocked.made, __ATOMIC_ACQUIRE)) sched_yield();
    nanosleep(&moment, NULL); /* it is inside, as a rule */
    CHECK_OK(weftCommAbort(one[0]));
    CHECK_OK(weftCommAbort(other[0]));
    pthread_join(blocked.thread, NULL);
    CHECK(blocked.result != weftSuccess);
    CHECK_OK(weftCommDestroy(one[1]));
    CHECK_OK(weftCommDestroy(other[1]));
}

static void* abort_it(void* argument) {
    struct rank_thread* self = argument;
    self->result = weftCommAbort(self->comm);
    return NULL;
}

/* The first thread aborts the communicator, the others find it dead, and nothing crashes. */
static void aborts_at_once(void) {
    int round, rank;
    for (round = 0; round < 50; ++round) {
        weftComm_t comm = NULL;
        struct rank_thread all[ranks] = {0};
        CHECK_OK(weftCommInitAll(&comm, 1, NULL));
        for (rank = 0; rank < ranks; ++rank) all[rank].comm = comm;
        each_rank(all, ranks, abort_it);
        for (rank = 0; rank < ranks; ++rank)
            CHECK(all[rank].result == weftSuccess || all[rank].result == weftInvalidArgument);
    }
}

static void* ends_inside_a_group(void* argument) {
    struct rank_thread* self = argument;
    float value = 1;
    weftUniqueId id;
    weftComm_t never = NULL;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, self->comm, NULL));
    CHECK_OK(weftCommInitRank(&never, 2, id, 0));
    return NULL;
}

static void group_left_open(void) {
    struct rank_thread other = {0};
    float value = 5;
    CHECK_OK(weftCommInitAll(&other.comm, 1, NULL));
    each_rank(&other, 1, ends_inside_a_group);
    CHECK_OK(weftAllReduce(&value, &value, 1, weftFloat32, weftSum, other.comm, NULL));
    CHECK(value == 5);
    CHECK_OK(weftCommDestroy(other.comm));
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1);
    run_case("threads are ranks of one communicator", threads_as_ranks);
    run_case("threads with communicators of their own do not disturb each other", communicators_side_by_side);
    run_case("the second thread in a communicator is refused and harms nothing", two_threads_in_one);
    run_case("an abort from another thread ends a blocked call", abort_while_blocked);
    run_case("communicators of one blocked group are aborted one after the other", abort_of_each_in_a_group);
    run_case("several threads may abort at once", aborts_at_once);
    run_case("a thread may end inside a group; its calls never happen", group_left_open);
    /* The process ends inside one: nothing waits for it. */
    CHECK_OK(weftGroupStart());
    return summary();
}
