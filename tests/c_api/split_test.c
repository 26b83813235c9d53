/* split_test.c: communicators made from communicators by one thread that drives all ranks, and by a thread for each. */
#include "check.h"

#include <pthread.h>
#include <time.h>

enum { most = 8 };

static void make_all(weftComm_t* comms, int ranks) { CHECK_OK(weftCommInitAll(comms, ranks, NULL)); }
static void end_all(weftComm_t* comms, int ranks) {
    int rank;
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}
static void split_all(weftComm_t* parents, int ranks, const int* colors, const int* keys, weftComm_t* children) {
    int rank;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        children[rank] = parents[rank]; /* to be overwritten at once */
        CHECK_OK(weftCommSplit(parents[rank], colors[rank], keys[rank], &children[rank], NULL));
        CHECK(children[rank] == NULL);
    }
    CHECK_OK(weftGroupEnd());
}
/* Each of the communicators that are there sums its callers' numbers, which are 1 << their place in the array. */
static void sums(weftComm_t* comms, int count, int* values) {
    int i;
    CHECK_OK(weftGroupStart());
    for (i = 0; i < count; ++i) {
        values[i] = 1 << i;
        if (comms[i]) CHECK_OK(weftAllReduce(&values[i], &values[i], 1, weftInt32, weftSum, comms[i], NULL));
    }
    CHECK_OK(weftGroupEnd());
}
static void check_place(weftComm_t comm, int expected_rank, int expected_count) {
    int rank = -1, count = -1;
    CHECK_OK(weftCommUserRank(comm, &rank));
    CHECK_OK(weftCommCount(comm, &count));
    CHECK(rank == expected_rank && count == expected_count);
}

static void colors_and_keys(void) {
    static const int colors[6] = {1, 0, 1, WEFT_SPLIT_NOCOLOR, 0, 1}, keys[6] = {5, 7, -3, 0, 7, 5};
    weftComm_t parents[6], children[6];
    int values[6], i;
    make_all(parents, 6);
    split_all(parents, 6, colors, keys, children);
    CHECK(children[3] == NULL);
    check_place(children[2], 0, 3);
    check_place(children[0], 1, 3);
    check_place(children[5], 2, 3);
    check_place(children[1], 0, 2);
    check_place(children[4], 1, 2);
    sums(children, 6, values);
    for (i = 0; i < 6; ++i) CHECK(values[i] == (colors[i] == 1 ? 1 + 4 + 32 : colors[i] == 0 ? 2 + 16 : 1 << i));
    sums(parents, 6, values);
    for (i = 0; i < 6; ++i) CHECK(values[i] == 63);
    end_all(parents, 6); /* the children live on */
    sums(children, 6, values);
    CHECK(values[0] == 1 + 4 + 32 && values[1] == 2 + 16);
    for (i = 0; i < 6; ++i) CHECK_OK(weftCommDestroy(children[i]));
}

static void children_of_children(void) {
    int ranks, rank;
    weftComm_t comms[most], next[most];
    int colors[most], keys[most], values[most];
    make_all(comms, most);
    for (ranks = most; ranks > 1; ranks /= 2) { /* the lower half, in reverse order, each time */
        for (rank = 0; rank < most; ++rank) {
            colors[rank] = rank < ranks / 2 ? 3 : WEFT_SPLIT_NOCOLOR;
            keys[rank] = -rank;
        }
        split_all(comms, ranks, colors, keys, next);
        for (rank = 0; rank < ranks; ++rank) {
            int place = -1;
            CHECK_OK(weftCommDestroy(comms[rank]));
            comms[rank] = next[rank];
            if (rank >= ranks / 2) continue;
            CHECK_OK(weftCommUserRank(comms[rank], &place));
            CHECK(place == ranks / 2 - 1 - rank);
        }
        sums(comms, ranks / 2, values);
        for (rank = 0; rank < ranks / 2; ++rank) CHECK(values[rank] == (1 << ranks / 2) - 1);
    }
    CHECK_OK(weftCommDestroy(comms[0]));
}

static uint64_t flag_block_bytes(weftComm_t comm) {
    uint64_t bytes = 0;
    CHECK_OK(weftCommMemStats(comm, weftMemFlagBlock, &bytes));
    return bytes;
}

static void slots_when_wanted(void) {
    enum { count = 1 << 14 };
    static const int same[2] = {0, 0};
    static float data[2][count];
    weftComm_t parents[2], children[2];
    uint64_t fresh[2];
    int rank;
    const char* const transports = getenv("WEFT_TRANSPORTS");
    if (transports && !strcmp(transports, "tcp")) return; /* there are no such slots */
    make_all(parents, 2);
    split_all(parents, 2, same, same, children);
    for (rank = 0; rank < 2; ++rank) {
        fresh[rank] = flag_block_bytes(children[rank]);
        CHECK(fresh[rank] < flag_block_bytes(parents[rank])); /* lines alone; a first communicator has slots, too */
    }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) {
        data[rank][count - 1] = 1;
        CHECK_OK(weftAllReduce(data[rank], data[rank], count, weftFloat32, weftSum, children[rank], NULL));
    }
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < 2; ++rank) {
        CHECK(data[rank][count - 1] == 2);
        CHECK(flag_block_bytes(children[rank]) > fresh[rank]);
    }
    end_all(parents, 2);
    end_all(children, 2);
}

/* A split keeps its place among the calls of a group; other ranks' groups may differ. */
static weftComm_t threaded[2];
static weftComm_t threaded_children[2];
static int threaded_values[2][2];
static void* without_a_group(void* unused) {
    int* values = threaded_values[1];
    (void)unused;
    CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, threaded[1], NULL));
    CHECK_OK(weftCommSplit(threaded[1], 0, 0, &threaded_children[1], NULL));
    CHECK_OK(weftAllReduce(&values[1], &values[1], 1, weftInt32, weftSum, threaded[1], NULL));
    return NULL;
}
static void order_in_a_group(void) {
    pthread_t other;
    int round;
    for (round = 0; round < 20; ++round) {
        int* values = threaded_values[0];
        make_all(threaded, 2);
        threaded_values[0][0] = threaded_values[0][1] = 1;
        threaded_values[1][0] = threaded_values[1][1] = 2;
        pthread_create(&other, NULL, without_a_group, NULL);
        CHECK_OK(weftGroupStart());
        CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, threaded[0], NULL));
        CHECK_OK(weftCommSplit(threaded[0], 0, 0, &threaded_children[0], NULL));
        CHECK_OK(weftAllReduce(&values[1], &values[1], 1, weftInt32, weftSum, threaded[0], NULL));
        CHECK_OK(weftGroupEnd());
        pthread_join(other, NULL);
        CHECK(values[0] == 3 && values[1] == 3);
        end_all(threaded_children, 2);
        end_all(threaded, 2);
    }
}

static void settings(void) {
    static const int colors[2] = {0, 0}, keys[2] = {0, 0};
    weftConfig_t config = WEFT_CONFIG_INITIALIZER, wrong = WEFT_CONFIG_INITIALIZER;
    weftComm_t parents[2], children[2], grandchildren[2];
    int values[2], rank;
    make_all(parents, 2);
    config.commName = "offspring";
    config.timeoutMs = 150;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommSplit(parents[rank], 0, 0, &children[rank], &config));
    CHECK_OK(weftGroupEnd());
    split_all(children, 2, colors, keys, grandchildren); /* inherits */
    CHECK_ERROR(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, grandchildren[0], NULL),
                "timeout.collective");
    sums(children, 2, values);
    CHECK(values[0] == 3);
    wrong.magic = 0;
    CHECK_ERROR(weftCommSplit(parents[0], 0, 0, &children[0], &wrong), "argument.config");
    CHECK(children[0] == NULL);
    CHECK_ERROR_NAMES(weftCommSplit(parents[0], 0, 0, NULL, NULL), "argument.null", "newcomm");
    CHECK_ERROR(weftCommSplit(NULL, 0, 0, &children[0], NULL), "argument.communicator");
    end_all(grandchildren, 2);
    CHECK_OK(weftCommDestroy(children[1]));
    end_all(parents, 2);
}

/* Ranks that do not call it, or call something else, are named; the communicator is dead then. */
static void not_by_all(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftComm_t parents[3], child;
    int value = 1;
    config.initTimeoutMs = 200;
    make_all(parents, 3);
    CHECK_ERROR(weftCommSplit(parents[1], 0, 0, &child, &config), "timeout.collective");
    CHECK(child == NULL);
    CHECK_TEXT(weftGetLastError(parents[1]), "a split of the communicator");
    CHECK_TEXT(weftGetLastError(parents[1]), "rank 0 (pid");
    CHECK_TEXT(weftGetLastError(parents[1]), "rank 2 (pid");
    CHECK_ERROR(weftCommSplit(parents[0], 0, 0, &child, &config), "timeout.collective");
    end_all(parents, 3);
    make_all(parents, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommSplit(parents[0], 0, 0, &child, NULL));
    CHECK_OK(weftAllReduce(&value, &value, 1, weftInt32, weftSum, parents[1], NULL));
    CHECK_ERROR(weftGroupEnd(), "mismatch.call");
    CHECK(child == NULL);
    end_all(parents, 2);
}

/* The other rank never comes to the shrink: an abort ends the waiting. */
static void* abort_soon(void* comm) {
    struct timespec moment = {0, 50 * 1000 * 1000};
    nanosleep(&moment, NULL);
    CHECK_OK(weftCommAbort((weftComm_t)comm));
    return NULL;
}
static void aborted_meanwhile(void) {
    pthread_t other;
    weftComm_t parents[3], child = NULL;
    int exclude[1] = {2};
    make_all(parents, 3);
    pthread_create(&other, NULL, abort_soon, parents[0]);
    CHECK_ERROR(weftCommShrink(parents[0], exclude, 1, &child, NULL, WEFT_SHRINK_DEFAULT), "abort.local");
    pthread_join(other, NULL);
    CHECK(child == NULL);
    CHECK_OK(weftCommDestroy(parents[1]));
    CHECK_OK(weftCommDestroy(parents[2]));
}

static void finalized(void) {
    weftComm_t comms[2], child;
    weftResult_t error = weftInternalError;
    int values[2], exclude = 1;
    make_all(comms, 2);
    sums(comms, 2, values);
    CHECK_OK(weftCommFinalize(comms[0])); /* no rank waits for another */
    check_place(comms[0], 0, 2);
    CHECK_OK(weftCommGetAsyncError(comms[0], &error));
    CHECK(error == weftSuccess);
    CHECK_ERROR(weftAllReduce(values, values, 1, weftInt32, weftSum, comms[0], NULL), "usage.finalized");
    CHECK_ERROR(weftBarrier(comms[0], NULL), "usage.finalized");
    CHECK_ERROR(weftCommSplit(comms[0], 0, 0, &child, NULL), "usage.finalized");
    CHECK_ERROR(weftCommShrink(comms[0], &exclude, 1, &child, NULL, WEFT_SHRINK_DEFAULT), "usage.finalized");
    CHECK_ERROR(weftCommFinalize(comms[0]), "usage.finalized");
    CHECK_ERROR(weftCommFinalize(NULL), "argument.communicator");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftAllReduce(values, values, 1, weftInt32, weftSum, comms[1], NULL));
    CHECK_ERROR(weftCommFinalize(comms[1]), "group.holds-calls");
    CHECK_OK(weftCommDestroy(comms[0]));
    CHECK_ERROR(weftGroupEnd(), "rank.left");
    CHECK_ERROR(weftCommFinalize(comms[1]), "rank.left");
    CHECK_OK(weftCommDestroy(comms[1]));
    CHECK_ERROR(weftCommFinalize(comms[1]), "argument.communicator");
}

static void shrink_healthy(void) {
    static int exclude[2] = {4, 1};
    weftComm_t parents[5], children[5] = {NULL, NULL, NULL, NULL, NULL};
    int values[5], rank, round;
    make_all(parents, 5);
    for (round = 0; round < 2; ++round) { /* those without whom it was shrunk are in the parent still */
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < 5; ++rank)
            if (rank != 1 && rank != 4)
                CHECK_OK(weftCommShrink(parents[rank], exclude, 2, &children[rank], NULL, WEFT_SHRINK_DEFAULT));
        CHECK_OK(weftGroupEnd());
        check_place(children[0], 0, 3);
        check_place(children[2], 1, 3);
        check_place(children[3], 2, 3);
        sums(children, 5, values);
        CHECK(values[0] == 1 + 4 + 8 && values[2] == 1 + 4 + 8 && values[3] == 1 + 4 + 8);
        sums(parents, 5, values);
        CHECK(values[4] == 31);
        for (rank = 0; rank < 5; ++rank) CHECK_OK(weftCommDestroy(children[rank]));
    }
    end_all(parents, 5);
}

static void shrink_failed(void) {
    static int exclude[1] = {0};
    weftComm_t parents[4], children[4] = {NULL, NULL, NULL, NULL};
    int values[4], rank;
    make_all(parents, 4);
    CHECK_OK(weftCommAbort(parents[0]));
    CHECK(weftAllReduce(values, values, 1, weftInt32, weftSum, parents[1], NULL) == weftRemoteError);
    CHECK_ERROR(weftCommShrink(parents[1], exclude, 1, &children[1], NULL, WEFT_SHRINK_DEFAULT), "abort.remote");
    CHECK_OK(weftGroupStart());
    for (rank = 1; rank < 4; ++rank)
        CHECK_OK(weftCommShrink(parents[rank], exclude, 1, &children[rank], NULL, WEFT_SHRINK_ABORT));
    CHECK_OK(weftGroupEnd());
    for (rank = 1; rank < 4; ++rank) CHECK_OK(weftCommDestroy(parents[rank]));
    sums(children, 4, values);
    for (rank = 1; rank < 4; ++rank) CHECK(values[rank] == 2 + 4 + 8);
    for (rank = 1; rank < 4; ++rank) CHECK_OK(weftCommDestroy(children[rank]));
}

/* Calls in streams that wait for the excluded rank end with an error. */
static void shrink_in_progress(void) {
    static int exclude[1] = {2};
    weftComm_t parents[3], children[3] = {NULL, NULL, NULL};
    weftStream_t streams[2];
    int values[3] = {1, 1, 1}, rank;
    make_all(parents, 3);
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftStreamCreate(&streams[rank]));
        CHECK_OK(weftAllReduce(&values[rank], &values[rank], 1, weftInt32, weftSum, parents[rank], streams[rank]));
    }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank)
        CHECK_OK(weftCommShrink(parents[rank], exclude, 1, &children[rank], NULL, WEFT_SHRINK_ABORT));
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < 2; ++rank) CHECK(weftStreamDestroy(streams[rank]) == weftRemoteError);
    for (rank = 0; rank < 3; ++rank) CHECK_OK(weftCommDestroy(parents[rank]));
    sums(children, 3, values);
    for (rank = 0; rank < 2; ++rank) CHECK(values[rank] == 1 + 2);
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(children[rank]));
}

static void shrink_wrong(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftComm_t parents[3], child;
    int values[3], range[1] = {3}, twice[2] = {1, 1}, self[1] = {0}, one[1] = {2};
    config.initTimeoutMs = 200;
    make_all(parents, 3);
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], range, 1, &child, NULL, 0), "argument.rank", "has rank 3");
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], twice, 2, &child, NULL, 0), "argument.rank", "rank 1 twice");
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], self, 1, &child, NULL, 0), "argument.rank", "rank 0");
    CHECK_ERROR(weftCommShrink(parents[0], NULL, 1, &child, NULL, 0), "argument.null");
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], one, 0, &child, NULL, 0), "argument.value", "excludeRanksCount");
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], one, 1, &child, NULL, 2), "argument.value", "shrinkFlags");
    CHECK_ERROR_NAMES(weftCommShrink(parents[0], one, 1, NULL, NULL, 0), "argument.null", "newcomm");
    CHECK_FAILS(weftCommShrink(parents[0], one, 1, &child, &config, 0), weftTimeout, "200 ms for rank 1");
    /* The other does not come again. */
    CHECK(weftCommShrink(parents[1], one, 1, &child, &config, 0) != weftSuccess);
    CHECK_TEXT(weftGetLastError(parents[1]), "rank 0");
    CHECK(child == NULL);
    sums(parents, 3, values); /* unharmed */
    CHECK(values[0] == 7);
    end_all(parents, 3);
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1);
    run_case("ranks of one colour are a communicator, ordered by key and then by rank", colors_and_keys);
    run_case("children have children", children_of_children);
    run_case("a child's slots take no memory until a call wants them", slots_when_wanted);
    run_case("a split in a group has its turn among the calls on its communicator", order_in_a_group);
    run_case("a child has its parent's settings where its own say nothing", settings);
    run_case("a split by some ranks only names the others, and one against another call both", not_by_all);
    run_case("an abort ends a shrink that waits", aborted_meanwhile);
    run_case("a finalized communicator takes no calls, and finalize waits for no rank", finalized);
    run_case("a healthy communicator shrinks by ranks that do not call, and lives on", shrink_healthy);
    run_case("an aborted communicator shrinks to those that are left", shrink_failed);
    run_case("calls in streams that wait for the excluded rank end when ranks shrink and abort", shrink_in_progress);
    run_case("a wrong shrink gets an error with the remedy and harms no rank", shrink_wrong);
    return summary();
}
