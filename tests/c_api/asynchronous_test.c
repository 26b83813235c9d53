/* asynchronous_test.c: calls that are prepared or joined, communicators that do not block, what calls ask for beside
 * their arguments. One thread drives all ranks. */
#include "streams.h"

/* The final result of a non-blocking communicator. */
static weftResult_t outcome(weftComm_t comm) {
    weftResult_t state = weftInProgress;
    while (state == weftInProgress) {
        CHECK_OK(weftCommGetAsyncError(comm, &state));
        if (state == weftInProgress) nap(1);
    }
    return state;
}

static void prepared_calls_start_many_times(void) {
    static int values[ranks][many];
    weftPrepared_t alone[2], all = NULL, queued = NULL, none = (weftPrepared_t)values;
    int rank, round;
    begin_with(ranks);
    CHECK_ERROR(weftGroupPrepare(&none), "group.not-open");
    CHECK(none == NULL);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(weftAllReduce(values[rank], values[rank], many, weftInt32, weftSum, comms[rank], NULL));
        CHECK_OK(weftAllReduce(values[rank], values[rank], 1, weftInt32, weftMax, comms[rank], NULL));
    }
    CHECK_OK(weftGroupPrepare(&all));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllReduce(values[rank], values[rank], 2, weftInt32, weftSum, comms[rank], streams[rank]));
    CHECK_OK(weftGroupPrepare(&queued));
    for (rank = 0; rank < ranks; ++rank) values[rank][0] = values[rank][many - 1] = 1;
    for (round = 0; round < 3; ++round) {
        CHECK_OK(weftPreparedStart(all));
        CHECK_OK(weftPreparedStart(queued));
    }
    wait_all(ranks);
    CHECK_OK(weftGroupStart()); /* as part of a group */
    CHECK_OK(weftPreparedStart(all));
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank) CHECK(values[rank][0] == 1 << 14 && values[rank][many - 1] == 1 << 8);
    CHECK_OK(weftPreparedDestroy(queued));
    CHECK_ERROR(weftPreparedStart(queued), "argument.handle");
    end_with(ranks);
    CHECK_ERROR(weftPreparedStart(all), "argument.communicator");
    CHECK_OK(weftPreparedDestroy(all));
    CHECK_ERROR(weftPreparedDestroy(all), "argument.handle");
    CHECK_OK(weftPreparedDestroy(NULL));
    CHECK_ERROR(weftPreparedStart((weftPrepared_t)values), "argument.handle");
    CHECK_ERROR_NAMES(weftPreparedStart(NULL), "argument.handle", "prepared");
    /* One call, one rank; and groups that cannot be prepared. */
    begin_with(1);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftBcast(values[0], 5, weftInt32, 0, comms[0], NULL));
    CHECK_OK(weftGroupPrepare(&alone[0]));
    CHECK_OK(weftPreparedStart(alone[0]));
    CHECK_OK(weftPreparedDestroy(alone[0]));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommSplit(comms[0], 0, 0, &comms[1], NULL));
    CHECK_ERROR(weftGroupPrepare(&alone[0]), "group.not-preparable");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftGroupStart());
    CHECK_ERROR(weftGroupPrepare(&alone[0]), "group.not-preparable");
    CHECK_ERROR_NAMES(weftGroupPrepare(NULL), "argument.null", "prepared");
    CHECK_ERROR(weftGroupEnd(), "group.not-open");
    CHECK_OK(weftGroupStart()); /* nothing is a group too */
    CHECK_OK(weftGroupPrepare(&alone[1]));
    CHECK_OK(weftPreparedStart(alone[1]));
    CHECK_OK(weftPreparedDestroy(alone[1]));
    end_with(1);
}

static void calls_have_configs(void) {
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    static char text[1 << 16];
    static float values[2][many];
    size_t needed;
    int rank, round;
    begin_with(2);
    config.algo = "ring";
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommSetCallConfig(comms[rank], &config));
    CHECK_OK(weftCommExplain(comms[0], many, weftFloat32, weftSum, text, sizeof text, &needed));
    CHECK(strstr(text, "ring") != NULL);
    for (round = 0; round < 3; ++round) { /* with ring, then as before, then with ring again */
        for (rank = 0; rank < 2; ++rank) {
            values[rank][many - 1] = 2;
            CHECK_OK(weftCommSetCallConfig(comms[rank], round == 1 ? NULL : &config));
            CHECK_OK(weftAllReduce(values[rank], values[rank], many, weftFloat32, weftSum, comms[rank], streams[rank]));
        }
        wait_all(2);
        CHECK(values[0][many - 1] == 4 && values[1][many - 1] == 4);
    }
    config.algo = "wring";
    CHECK_ERROR(weftCommSetCallConfig(comms[0], &config), "option.names");
    config.algo = NULL;
    config.channels = 65;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "channels");
    config.channels = WEFT_CONFIG_UNDEF_INT;
    config.maxBlocks = 65;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "config.maxBlocks is 65");
    config.size = offsetof(weftCallConfig_t, minBlocks); /* an older caller's, without the field */
    CHECK_OK(weftCommSetCallConfig(comms[0], &config));
    config.size = sizeof config;
    config.maxBlocks = WEFT_CONFIG_UNDEF_INT;
    config.blockPolicy = 7;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "config.blockPolicy is 7");
    config.size = offsetof(weftCallConfig_t, blockPolicy);
    CHECK_OK(weftCommSetCallConfig(comms[0], &config));
    config.size = sizeof config;
    config.blockPolicy = WEFT_CONFIG_UNDEF_INT;
    config.maxBlocks = 4, config.minBlocks = 5;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "config.minBlocks is 5, more than");
    config.minBlocks = 0;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "config.minBlocks is 0");
    config.magic = 0;
    CHECK_ERROR_NAMES(weftCommSetCallConfig(comms[0], &config), "argument.config", "WEFT_CALL_CONFIG_INITIALIZER");
    /* An algorithm that cannot serve is refused on every rank alike, and the next call works. */
    config = (weftCallConfig_t)WEFT_CALL_CONFIG_INITIALIZER;
    config.algo = "two_level_ring";
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftCommSetCallConfig(comms[rank], &config));
        CHECK_ERROR(weftAllReduce(values[rank], values[rank], 7, weftFloat32, weftSum, comms[rank], NULL),
                    "algorithm.none");
        CHECK_OK(weftCommSetCallConfig(comms[rank], NULL));
        CHECK_OK(weftAllReduce(values[rank], values[rank], 7, weftFloat32, weftSum, comms[rank], streams[rank]));
    }
    wait_all(2);
    /* The ranks' choices differ: an error at once, not a wait. */
    config = (weftCallConfig_t)WEFT_CALL_CONFIG_INITIALIZER;
    config.algo = "recursive_doubling";
    CHECK_OK(weftCommSetCallConfig(comms[0], &config));
    config.algo = "halving_doubling";
    CHECK_OK(weftCommSetCallConfig(comms[1], &config));
    for (rank = 0; rank < 2; ++rank)
        CHECK_OK(weftAllReduce(values[rank], values[rank], 7, weftFloat32, weftSum, comms[rank], streams[rank]));
    for (rank = 0; rank < 2; ++rank)
        CHECK_ERROR(weftStreamWait(streams[rank], WEFT_STREAM_ALL, -1), "mismatch.algorithm");
    end_with(2);
    /* A deadline of its own: the communicator's would be ten minutes. */
    begin_with(2);
    config = (weftCallConfig_t)WEFT_CALL_CONFIG_INITIALIZER;
    config.timeoutMs = 30;
    CHECK_OK(weftCommSetCallConfig(comms[0], &config));
    CHECK_ERROR(weftBarrier(comms[0], NULL), "timeout.collective");
    end_with(2);
    begin_with(2);
    CHECK_OK(weftCommSetCallConfig(comms[0], &config));
    CHECK_ERROR(weftRecv(values[0], 1, weftFloat32, 1, comms[0], NULL), "timeout.message");
    end_with(2);
}

static void communicators_that_do_not_block(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    static int values[ranks][many];
    weftComm_t children[ranks];
    weftResult_t state;
    int rank, i;
    config.blocking = 0;
    CHECK_OK(weftGetUniqueId(&id));
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_CODE(weftCommInitRankConfig(&comms[rank], ranks, id, rank, &config), weftInProgress);
        CHECK(comms[rank] != NULL);
        if (rank < ranks - 1) { /* the last one is not there: nobody can be through */
            CHECK_OK(weftCommGetAsyncError(comms[rank], &state));
            CHECK(state == weftInProgress);
            CHECK_ERROR(weftBarrier(comms[rank], NULL), "usage.not-ready");
        }
    }
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftSuccess);
    /* One thread, no group: calls go on by themselves. */
    for (rank = 0; rank < ranks; ++rank) values[rank][many - 1] = 1;
    for (i = 0; i < 20; ++i)
        for (rank = 0; rank < ranks; ++rank) {
            CHECK_CODE(weftAllReduce(values[rank], values[rank], many, weftInt32, i % 4 ? weftMax : weftSum,
                                     comms[rank], NULL),
                       weftInProgress);
        }
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftSuccess);
    for (rank = 0; rank < ranks; ++rank) CHECK(values[rank][many - 1] == 1024);
    /* Children do not block either. */
    for (rank = 0; rank < ranks; ++rank)
        CHECK_CODE(weftCommSplit(comms[rank], rank % 2, 0, &children[rank], NULL), weftInProgress);
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftSuccess);
    for (rank = 0; rank < ranks; ++rank) {
        values[rank][0] = rank;
        CHECK_CODE(weftAllReduce(values[rank], values[rank], 1, weftInt32, weftSum, children[rank], NULL),
                   weftInProgress);
    }
    for (rank = 0; rank < ranks; ++rank) {
        CHECK(outcome(children[rank]) == weftSuccess);
        CHECK(values[rank][0] == (rank % 2 ? 4 : 2));
        CHECK_OK(weftCommDestroy(children[rank]));
    }
    /* An error, and the end. */
    for (rank = 0; rank < ranks; ++rank)
        CHECK_CODE(
            weftAllReduce(values[rank], values[rank], 1 + (size_t)(rank == 2), weftInt32, weftSum, comms[rank], NULL),
            weftInProgress);
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftMismatch);
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
    /* In a group, as one thread makes them all. */
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        weftResult_t queued = weftCommInitRankConfig(&comms[rank], ranks, id, rank, &config);
        CHECK(queued == weftSuccess || queued == weftInProgress);
    }
    CHECK_CODE(weftGroupEnd(), weftInProgress);
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftSuccess);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftBarrier(comms[rank], NULL));
    CHECK_CODE(weftGroupEnd(), weftInProgress);
    for (rank = 0; rank < ranks; ++rank) CHECK_CODE(weftCommFinalize(comms[rank]), weftInProgress);
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome(comms[rank]) == weftSuccess);
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}

static void making_can_be_given_up_or_fail(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    weftComm_t comm;
    config.blocking = 0;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_CODE(weftCommInitRankConfig(&comm, 2, id, 0, &config), weftInProgress);
    CHECK_OK(weftCommAbort(comm));
    CHECK_ERROR(weftCommAbort(comm), "argument.communicator");
    config.initTimeoutMs = 30;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_CODE(weftCommInitRankConfig(&comm, 2, id, 0, &config), weftInProgress);
    CHECK(outcome(comm) == weftTimeout);
    CHECK_TEXT(weftGetLastError(comm), "rank 1");
    CHECK_ERROR(weftBarrier(comm, NULL), "usage.not-made");
    CHECK_OK(weftCommDestroy(comm));
    CHECK_ERROR(weftCommDestroy(comm), "argument.communicator");
}

static void small_calls_of_a_group_are_coalesced(void) {
    static int64_t sums[ranks][100][64];
    static float others[ranks][100];
    /* Of 5, 1, 1, 1; then rank 2 has that in place of a 1. */
    static const weftRedOp_t reductions[] = {weftSum, weftProd, weftMax, weftMin, weftAvg};
    static const int64_t once[] = {8, 5, 5, 1, 2}, twice[] = {15, 25, 5, 1, 2};
    int rank, i, k;
    begin_with(ranks);
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < 100; ++i) {
            others[rank][i] = (float)(rank + i);
            for (k = 0; k < 64; ++k) sums[rank][i][k] = rank == k % ranks ? i : 0;
        }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < 100; ++i) {
            CHECK_OK(
                weftAllReduce(sums[rank][i], sums[rank][i], (size_t)(i % 65), weftInt64, weftSum, comms[rank], NULL));
            if (i % 10 == 9)
                CHECK_OK(weftAllReduce(&others[rank][i - 9], &others[rank][i - 9], 10, weftFloat32, weftMax,
                                       comms[rank], NULL));
        }
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < 100; ++i) {
            int right = others[rank][i] == (float)(ranks - 1 + i);
            for (k = 0; k < 64; ++k) right = right && sums[rank][i][k] == (k < i % 65 || rank == k % ranks ? i : 0);
            if (!right) {
                CHECK(right);
                i = 100;
            }
        }
    /* Calls that depend on each other run one after the other, although one rank alone knows of the dependence. */
    for (i = 0; i < (int)(sizeof reductions / sizeof *reductions); ++i) {
        for (rank = 0; rank < ranks; ++rank)
            for (k = 0; k < 8; ++k) sums[rank][0][k] = sums[rank][1][k] = sums[rank][2][k] = rank == 0 ? 5 : 1;
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < ranks; ++rank) {
            CHECK_OK(weftAllReduce(sums[rank][0], sums[rank][1], 8, weftInt64, reductions[i], comms[rank], NULL));
            CHECK_OK(weftAllReduce(sums[rank][rank == 2 ? 1 : 0], sums[rank][2], 8, weftInt64, reductions[i],
                                   comms[rank], NULL));
        }
        CHECK_OK(weftGroupEnd());
        for (rank = 0; rank < ranks; ++rank) CHECK(sums[rank][1][7] == once[i] && sums[rank][2][7] == twice[i]);
    }
    end_with(ranks);
    if (getenv("WEFT_JOIN_BYTES")) return; /* by itself each call fits another rank's */
    begin_with(ranks);
    for (rank = 0; rank < ranks; ++rank) { /* as many elements, in other calls */
        CHECK_OK(weftGroupStart());
        CHECK_OK(weftAllReduce(sums[rank][0], sums[rank][0], 5 + (size_t)(rank % 2), weftInt64, weftSum, comms[rank],
                               streams[rank]));
        CHECK_OK(weftAllReduce(sums[rank][1], sums[rank][1], 5 - (size_t)(rank % 2), weftInt64, weftSum, comms[rank],
                               streams[rank]));
        CHECK_OK(weftGroupEnd());
    }
    for (rank = 0; rank < ranks; ++rank)
        CHECK_ERROR(weftStreamWait(streams[rank], WEFT_STREAM_ALL, -1), "mismatch.call");
    end_with(ranks);
}

int main(void) {
    run_case("prepared calls start many times", prepared_calls_start_many_times);
    run_case("calls have configs of their own", calls_have_configs);
    run_case("communicators that do not block", communicators_that_do_not_block);
    run_case("making a communicator can be given up, or fail", making_can_be_given_up_or_fail);
    run_case("small calls of a group are joined", small_calls_of_a_group_are_coalesced);
    return summary();
}
