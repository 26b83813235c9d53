/* groups_test.c: one thread drives several ranks: groups of calls and of inits, nested, over several communicators,
 * with wrong calls among them. */
#include "check.h"

enum { most = 8 };

static void make_all(weftComm_t* comms, int ranks) { CHECK_OK(weftCommInitAll(comms, ranks, NULL)); }
static void end_all(weftComm_t* comms, int ranks) {
    int rank;
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}
static weftResult_t sum_ints(int* buffer, int count, weftComm_t comm) {
    return weftAllReduce(buffer, buffer, (size_t)count, weftInt32, weftSum, comm, NULL);
}

static void one_to_eight_ranks(void) {
    static const int counts[] = {0, 1, 13, 1000, 100000};
    int ranks, rank, size, i, round;
    for (ranks = 1; ranks <= most; ++ranks) {
        weftComm_t comms[most];
        make_all(comms, ranks);
        for (size = 0; size < (int)(sizeof counts / sizeof *counts); ++size)
            for (round = 0; round < 2; ++round) { /* planned, and found again */
                const int count = counts[size];
                int *buffers[most], wrong = 0;
                for (rank = 0; rank < ranks; ++rank) {
                    buffers[rank] = malloc(sizeof(int) * (size_t)(count + 1));
                    for (i = 0; i < count; ++i) buffers[rank][i] = (rank + 1) * (i + 1);
                }
                CHECK_OK(weftGroupStart());
                for (rank = 0; rank < ranks; ++rank) CHECK_OK(sum_ints(buffers[rank], count, comms[rank]));
                CHECK_OK(weftGroupEnd());
                for (rank = 0; rank < ranks; ++rank) {
                    for (i = 0; i < count; ++i) wrong += buffers[rank][i] != ranks * (ranks + 1) / 2 * (i + 1);
                    free(buffers[rank]);
                }
                CHECK(wrong == 0);
            }
        end_all(comms, ranks);
    }
}

static void nested(void) {
    weftComm_t comms[2];
    int values[2] = {1, 2};
    make_all(comms, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[0], 1, comms[0]));
    CHECK_OK(weftGroupEnd()); /* an inner end begins nothing: rank 1 has not called yet */
    CHECK(values[0] == 1);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[1], 1, comms[1]));
    CHECK_OK(weftGroupEnd());
    CHECK_OK(weftGroupEnd());
    CHECK(values[0] == 3 && values[1] == 3);
    CHECK_OK(weftGroupStart()); /* empty */
    CHECK_OK(weftGroupEnd());
    CHECK_ERROR(weftGroupEnd(), "group.not-open");
    end_all(comms, 2);
}

static void several_calls_and_communicators(void) {
    weftComm_t small[2], large[5];
    int values[2][3], big[5][5000], rank, call, i, wrong = 0;
    weftRedOp_t op[2];
    double scalars[2] = {2, 3}, products[2] = {10, 100};
    make_all(small, 2);
    make_all(large, 5);
    for (rank = 0; rank < 2; ++rank) {
        for (call = 0; call < 3; ++call) values[rank][call] = (rank + 1) * (call + 1);
        CHECK_OK(
            weftRedOpCreatePreMulSum(&op[rank], &scalars[rank], weftFloat64, weftScalarHostImmediate, small[rank]));
    }
    for (rank = 0; rank < 5; ++rank)
        for (i = 0; i < 5000; ++i) big[rank][i] = i + rank;
    CHECK_OK(weftGroupStart());
    for (rank = 4; rank >= 0; --rank) {
        CHECK_OK(sum_ints(big[rank], 5000, large[rank]));
        if (rank >= 2) continue;
        for (call = 0; call < 3; ++call) CHECK_OK(sum_ints(&values[rank][call], 1, small[rank]));
        CHECK_OK(weftAllReduce(&products[rank], &products[rank], 1, weftFloat64, op[rank], small[rank], NULL));
        CHECK_ERROR(weftRedOpDestroy(op[rank], small[rank]), "group.holds-calls");
        CHECK_OK(sum_ints(big[rank], 0, small[rank]));
    }
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < 2; ++rank)
        for (call = 0; call < 3; ++call) CHECK(values[rank][call] == 3 * (call + 1));
    CHECK(products[0] == 320 && products[1] == 320);
    for (rank = 0; rank < 5; ++rank)
        for (i = 0; i < 5000; ++i) wrong += big[rank][i] != 5 * i + 10;
    CHECK(wrong == 0);
    end_all(small, 2);
    end_all(large, 5);
}

static void inits(void) {
    weftComm_t one[3] = {NULL, NULL, NULL}, other[2] = {NULL, NULL}, all[2] = {NULL, NULL};
    weftUniqueId first, second;
    int rank, count = 0;
    CHECK_OK(weftGetUniqueId(&first));
    CHECK_OK(weftGetUniqueId(&second));
    CHECK_OK(weftGroupStart());
    for (rank = 2; rank >= 0; --rank) {
        CHECK_OK(weftCommInitRank(&one[rank], 3, first, rank));
        if (rank < 2) CHECK_OK(weftCommInitRank(&other[1 - rank], 2, second, 1 - rank));
        CHECK(one[rank] == NULL); /* not before the end */
    }
    CHECK_OK(weftCommInitAll(all, 2, NULL));
    CHECK_ERROR_NAMES(weftCommInitRank(&one[0], 3, first, 5), "argument.rank", "rank is 5");
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < 3; ++rank) {
        int found = -1;
        CHECK_OK(weftCommUserRank(one[rank], &found));
        CHECK_OK(weftCommCount(one[rank], &count));
        CHECK(found == rank && count == 3);
    }
    end_all(one, 3);
    end_all(other, 2);
    end_all(all, 2);
}

static void same_rank_twice_in_one_group(void) {
    weftComm_t comms[2] = {NULL, NULL};
    weftUniqueId id;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommInitRank(&comms[0], 2, id, 1));
    CHECK_OK(weftCommInitRank(&comms[1], 2, id, 1));
    CHECK_ERROR(weftGroupEnd(), "mismatch.rank-twice");
    CHECK(comms[0] == NULL && comms[1] == NULL);
}

/* A wrong call is refused where it is made; the right ones of the group are carried out. */
static void wrong_call_among_right_ones(void) {
    weftComm_t comms[2];
    int values[2] = {1, 2};
    make_all(comms, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[0], 1, comms[0]));
    CHECK_ERROR_NAMES(weftAllReduce(NULL, values, 1, weftInt32, weftSum, comms[0], NULL), "argument.null", "sendbuff");
    CHECK_OK(sum_ints(&values[1], 1, comms[1]));
    CHECK_OK(weftGroupEnd());
    CHECK(values[0] == 3 && values[1] == 3);
    end_all(comms, 2);
}

/* No other rank makes the call that was refused: a rank that waits for it gets an error before its deadline. */
static void refused_on_another_rank(void) {
    weftComm_t comms[3];
    static int values[3][100000];
    const char* const algorithms[] = {NULL, "ring"};
    size_t i, count;
    int rank;
    for (i = 0; i < 2; ++i)
        for (count = 1; count <= 100000; count *= 100000) {
            weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
            config.algo = algorithms[i];
            make_all(comms, 3);
            CHECK_OK(weftGroupStart());
            for (rank = 0; rank < 3; ++rank) {
                CHECK_OK(weftCommSetCallConfig(comms[rank], &config));
                if (rank != 1) CHECK_OK(sum_ints(values[rank], (int)count, comms[rank]));
            }
            CHECK_ERROR_NAMES(weftAllReduce(NULL, values[1], count, weftInt32, weftSum, comms[1], NULL),
                              "argument.null", "sendbuff");
            CHECK_ERROR_NAMES(weftGroupEnd(), "group.refused-call", "rank 1");
            CHECK(strstr(weftGetLastError(NULL), "sendbuff is NULL"));
            end_all(comms, 3);
        }
}

/* Nor that on a communicator that was finalized, which is refused when its turn comes: now, when a prepared group is started,
 * or on a stream. */
static void finalized_on_another_rank(void) {
    enum { now, prepared, streamed, ways };
    int way, rank, value[3];
    for (way = now; way < ways; ++way) {
        weftComm_t comms[3];
        weftStream_t stream = NULL;
        weftPrepared_t calls = NULL;
        make_all(comms, 3);
        if (way == streamed) CHECK_OK(weftStreamCreate(&stream));
        if (way != prepared) CHECK_OK(weftCommFinalize(comms[1]));
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < 3; ++rank)
            CHECK_OK(weftAllReduce(&value[rank], &value[rank], 1, weftInt32, weftSum, comms[rank], stream));
        if (way == prepared) {
            CHECK_OK(weftGroupPrepare(&calls));
            CHECK_OK(weftCommFinalize(comms[1]));
            CHECK_ERROR(weftPreparedStart(calls), "usage.finalized");
            CHECK_OK(weftPreparedDestroy(calls));
        } else if (way == streamed) {
            CHECK_OK(weftGroupEnd());
            CHECK_ERROR(weftStreamWait(stream, WEFT_STREAM_ALL, -1), "usage.finalized");
            CHECK_OK(weftStreamDestroy(stream));
        } else {
            CHECK_ERROR(weftGroupEnd(), "usage.finalized");
        }
        CHECK_TEXT(weftGetLastError(comms[0]), "for rank 1, whose call was refused in this group: call 1 of");
        end_all(comms, 3);
    }
}

/* Of messages it cannot be known: the deadline decides, and says what was refused. */
static void refused_message(void) {
    weftComm_t comms[2];
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    int value = 1, rank;
    config.timeoutMs = 300;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommInitRankConfig(&comms[rank], 2, id, rank, &config));
    CHECK_OK(weftGroupEnd());
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftRecv(&value, 1, weftInt32, 1, comms[0], NULL));
    CHECK_ERROR(weftSend(NULL, 1, weftInt32, 0, comms[1], NULL), "argument.null");
    CHECK_ERROR_NAMES(weftGroupEnd(), "timeout.message", "a call of rank 1 was refused in this group: call 1");
    end_all(comms, 2);
}

static void destroy_inside(void) {
    weftComm_t comms[2];
    int values[2] = {1, 2};
    make_all(comms, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[0], 1, comms[0]));
    CHECK_OK(sum_ints(&values[1], 1, comms[1]));
    CHECK_ERROR(weftCommDestroy(comms[0]), "group.holds-calls");
    CHECK_OK(weftGroupEnd());
    CHECK(values[0] == 3);
    end_all(comms, 2);
}

/* An abort inside a group ends that communicator; the group's other communicators are driven nevertheless. */
static void abort_inside(void) {
    weftComm_t doomed[2], healthy[2];
    int values[2] = {1, 2}, sums[2] = {1, 2};
    make_all(doomed, 2);
    make_all(healthy, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[0], 1, doomed[0]));
    CHECK_OK(sum_ints(&values[1], 1, doomed[1]));
    CHECK_OK(sum_ints(&sums[0], 1, healthy[0]));
    CHECK_OK(sum_ints(&sums[1], 1, healthy[1]));
    CHECK_OK(weftCommAbort(doomed[0]));
    CHECK(weftGroupEnd() != weftSuccess);
    CHECK(sums[0] == 3 && sums[1] == 3);
    CHECK_ERROR(sum_ints(&values[1], 1, doomed[1]), "abort.remote");
    CHECK_OK(weftCommDestroy(doomed[1]));
    end_all(healthy, 2);
}

/* The group still has to make the communicator, so the abort is refused. */
static void abort_before_it_is_made(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    weftComm_t made = NULL, child = NULL;
    weftResult_t state = weftInProgress;
    config.blocking = 0;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommInitRankConfig(&made, 1, id, 0, &config));
    CHECK_ERROR(weftCommAbort(made), "group.holds-calls");
    CHECK(weftGroupEnd() == weftInProgress);
    while (state == weftInProgress) CHECK_OK(weftCommGetAsyncError(made, &state));
    CHECK_OK(state);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommSplit(made, 0, 0, &child, &config));
    CHECK_ERROR(weftCommAbort(child), "group.holds-calls");
    CHECK(weftGroupEnd() == weftInProgress);
    for (state = weftInProgress; state == weftInProgress;) CHECK_OK(weftCommGetAsyncError(child, &state));
    CHECK_OK(state);
    CHECK_OK(weftCommAbort(child));
    CHECK_OK(weftCommAbort(made));
}

/* Also the ranks of one thread may disagree; group end says so, each communicator remembers, and others are made after
 * it. */
static void mismatch(void) {
    weftComm_t comms[2];
    int values[2][2] = {{1, 2}, {3, 4}}, rank;
    make_all(comms, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(values[0], 1, comms[0]));
    CHECK_OK(sum_ints(values[1], 2, comms[1]));
    CHECK_ERROR(weftGroupEnd(), "mismatch.count");
    for (rank = 0; rank < 2; ++rank) {
        weftResult_t error = weftSuccess;
        CHECK_OK(weftCommGetAsyncError(comms[rank], &error));
        CHECK(error == weftMismatch);
        CHECK_TEXT(weftGetLastError(comms[rank]), "all_reduce of 2 int32");
        CHECK_ERROR(sum_ints(values[rank], 1, comms[rank]), "mismatch.count");
    }
    end_all(comms, 2);
    make_all(comms, 2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(values[0], 1, comms[0]));
    CHECK_OK(sum_ints(values[1], 1, comms[1]));
    CHECK_OK(weftGroupEnd());
    end_all(comms, 2);
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1);
    run_case("one thread drives one to eight ranks", one_to_eight_ranks);
    run_case("groups nest, and an empty or unbegun one is harmless", nested);
    run_case("a group holds several calls on each of several communicators", several_calls_and_communicators);
    run_case("communicators of different ids are made in one group", inits);
    run_case("one thread that takes a rank twice gets an error", same_rank_twice_in_one_group);
    run_case("a wrong call in a group is refused and the others happen", wrong_call_among_right_ones);
    run_case("a rank that waits for a refused call of another rank of the thread fails at once",
             refused_on_another_rank);
    run_case("one thread's group in which a rank's communicator was finalized fails at once on the others",
             finalized_on_another_rank);
    run_case("a rank that waits for a refused message fails at the deadline", refused_message);
    run_case("a communicator with calls in an open group is not destroyed", destroy_inside);
    run_case("an abort in a group ends one communicator only", abort_inside);
    run_case("an abort in the group that makes the communicator is refused", abort_before_it_is_made);
    run_case("ranks of one thread that disagree get an error each", mismatch);
    return summary();
}
