/* group_errors_test.c: the status of each call of a group: refused, failed or never begun. Tested in streams,
 * prepared, coalesced and nested, with messages and new communicators. One thread drives all ranks. */
#include "streams.h"

static uint64_t call_count(void) {
    uint64_t calls = 99;
    CHECK_OK(weftGroupGetCallCount(&calls));
    return calls;
}
static weftResult_t outcome_of(uint64_t call) {
    weftResult_t result = weftNumResults;
    CHECK_OK(weftGroupGetCallError(call, &result, NULL));
    return result;
}
/* The call failed with `code`, and its sentence has both parts. */
static void check_failed(uint64_t call, weftResult_t code, const char* name, const char* part) {
    weftResult_t result = weftNumResults;
    const char* message = "";
    CHECK_OK(weftGroupGetCallError(call, &result, &message));
    CHECK(result == code);
    CHECK_TEXT(message, name);
    CHECK_TEXT(message, part);
}
static void check_succeeded(uint64_t first, uint64_t end) {
    const char* message = NULL;
    for (; first < end; ++first) {
        weftResult_t result = weftNumResults;
        CHECK_OK(weftGroupGetCallError(first, &result, &message));
        CHECK(result == weftSuccess && message && *message == 0);
    }
}
static weftResult_t sum_ints(int* buffer, size_t count, weftComm_t comm) {
    return weftAllReduce(buffer, buffer, count, weftInt32, weftSum, comm, NULL);
}

static void named_communicators(weftComm_t* pair, const char* name) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    int rank;
    config.commName = name;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommInitRankConfig(&pair[rank], 2, id, rank, &config));
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 2);
    check_succeeded(0, 2);
}
static void end_pair(weftComm_t* pair) {
    int rank;
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(pair[rank]));
}

static void before_any_group(void) {
    weftResult_t result;
    CHECK(call_count() == 0);
    CHECK_ERROR(weftGroupGetCallError(0, &result, NULL), "argument.value");
    CHECK_ERROR_NAMES(weftGroupGetCallError(0, NULL, NULL), "argument.null", "result");
    CHECK_ERROR_NAMES(weftGroupGetCallCount(NULL), "argument.null", "calls");
}

static void refused_calls(void) {
    weftComm_t pair[2], none = NULL;
    weftResult_t result;
    int values[2] = {1, 2};
    named_communicators(pair, "pair");
    CHECK_OK(weftGroupStart());
    CHECK_OK(sum_ints(&values[0], 1, pair[0]));
    CHECK_ERROR(weftReduce(NULL, values, 1, weftInt32, weftSum, 0, pair[1], NULL), "argument.null");
    CHECK_OK(weftGroupStart()); /* an inner group's calls are the outer one's */
    CHECK_OK(sum_ints(&values[1], 1, pair[1]));
    CHECK_ERROR(weftBarrier(none, NULL), "argument.communicator");
    CHECK_OK(weftGroupEnd());
    CHECK_FAILS(weftCommInitRank(&none, 2, (weftUniqueId){{0}}, 0), weftInvalidArgument, "unique id");
    CHECK(call_count() == 2); /* still those of the group before */
    CHECK_OK(weftGroupEnd());
    CHECK(values[0] == 3 && values[1] == 3);
    CHECK(call_count() == 5);
    check_succeeded(0, 1);
    check_failed(1, weftInvalidArgument,
                 "call 1 of the group, weftReduce on communicator pair (rank 1 of 2): ", "sendbuff is NULL");
    check_succeeded(2, 3);
    check_failed(3, weftInvalidArgument, "call 3 of the group, weftBarrier: ", "the communicator is NULL");
    check_failed(4, weftInvalidArgument, "call 4 of the group, weftCommInitRank: ", "unique id");
    CHECK_ERROR_NAMES(weftGroupGetCallError(5, &result, NULL), "argument.value", "call");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 0);
    end_pair(pair);
}

/* One of many calls on several communicators is wrong: it alone is named, what was behind it says so. */
static void one_failing_call_of_many(void) {
    enum { calls = 50 };
    static int values[2][calls], parts[2][calls][4];
    weftComm_t good[2], bad[2];
    int call, rank;
    named_communicators(good, "good");
    named_communicators(bad, "bad");
    CHECK_OK(weftGroupStart());
    for (call = 0; call < calls; ++call)
        for (rank = 0; rank < 2; ++rank) {
            int* const own = parts[rank][call];
            CHECK_OK(weftBcast(&values[rank][call], 1, weftInt32, 0, good[rank], NULL));
            /* The ranks differ in call 30 of theirs. */
            CHECK_OK(
                weftAllGather(&values[rank][call], own, call == 30 && rank == 1 ? 2 : 1, weftInt32, bad[rank], NULL));
        }
    CHECK_ERROR(weftGroupEnd(), "mismatch.count"); /* 121 or 123, whichever rank's is first */
    CHECK_TEXT(weftGetLastError(NULL), "weftAllGather on communicator bad (rank ");
    CHECK_TEXT(weftGetLastError(bad[0]), "call 121 of the group, weftAllGather on communicator bad (rank 0 of 2): ");
    CHECK_TEXT(weftGetLastError(bad[1]), "call 123 of the group, weftAllGather on communicator bad (rank 1 of 2): ");
    CHECK(call_count() == 4 * calls);
    for (call = 0; call < calls; ++call)
        for (rank = 0; rank < 2; ++rank) {
            const uint64_t number = (uint64_t)(4 * call + 2 * rank);
            CHECK(outcome_of(number) == weftSuccess);
            if (call < 30) CHECK(outcome_of(number + 1) == weftSuccess);
            if (call > 30)
                check_failed(number + 1, weftMismatch, "not carried out, for another failed: call 12",
                             "rank 0 called all_gather of 1 int32, rank 1 called all_gather of 2 int32");
        }
    check_failed(121, weftMismatch, "call 121 of the group", "rank 0 called all_gather");
    check_failed(123, weftMismatch, "call 123 of the group", "rank 0 called all_gather");
    end_pair(good);
    end_pair(bad);
}

/* Small all-reduces are coalesced: an error of the one call is an error of each. */
static void coalesced_calls(void) {
    static int values[ranks][3];
    int rank;
    begin_with(ranks);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(sum_ints(&values[rank][0], 1, comms[rank]));
        CHECK_OK(sum_ints(&values[rank][1], 1, comms[rank]));
    }
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 2 * ranks);
    check_succeeded(0, 2 * ranks);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(sum_ints(&values[rank][0], 1, comms[rank]));
        CHECK_OK(sum_ints(&values[rank][1], rank == 2 ? 2 : 1, comms[rank]));
    }
    CHECK_ERROR(weftGroupEnd(), "mismatch.count");
    for (rank = 0; rank < ranks; ++rank) CHECK(outcome_of((uint64_t)(2 * rank + 1)) == weftMismatch);
    end_with(ranks);
}

static void messages(void) {
    weftComm_t pair[2];
    int values[2][3] = {{1, 2, 3}, {0, 0, 0}};
    weftCallConfig_t hurried = WEFT_CALL_CONFIG_INITIALIZER;
    named_communicators(pair, "pair");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSend(&values[0][0], 1, weftInt32, 1, pair[0], NULL));
    CHECK_OK(weftRecv(&values[1][0], 1, weftInt32, 0, pair[1], NULL));
    CHECK_OK(weftSend(&values[0][1], 1, weftInt32, 1, pair[0], NULL));
    CHECK_OK(weftRecv(&values[1][1], 2, weftInt32, 0, pair[1], NULL)); /* call 3 differs */
    CHECK_OK(weftRecv(&values[1][2], 1, weftInt32, 0, pair[1], NULL));
    CHECK_FAILS(weftGroupEnd(), weftMismatch, "call 3 of the group, weftRecv on communicator pair (rank 1 of 2): ");
    check_succeeded(0, 2);
    CHECK(values[1][0] == 1);
    check_failed(3, weftMismatch, "call 3 of the group, weftRecv", "rank 0");
    CHECK(outcome_of(4) == weftMismatch);
    end_pair(pair);

    /* Both messages of a call are one, and a partner that does not come is a matter of the call that waits. */
    named_communicators(pair, "pair");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSendRecv(&values[0][0], 1, 1, &values[0][1], 1, 1, weftInt32, pair[0], NULL));
    CHECK_OK(weftSendRecv(&values[1][0], 1, 0, &values[1][1], 1, 0, weftInt32, pair[1], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 2);
    check_succeeded(0, 2);
    hurried.timeoutMs = 200;
    CHECK_OK(weftCommSetCallConfig(pair[1], &hurried));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSend(&values[1][0], 1, weftInt32, 0, pair[1], NULL));
    CHECK_OK(weftRecv(&values[1][1], 1, weftInt32, 0, pair[1], NULL));
    CHECK_ERROR(weftGroupEnd(), "timeout.message");
    CHECK(outcome_of(1) == weftTimeout);
    end_pair(pair);
}

static void communicators_to_be_made(void) {
    weftComm_t twice[2] = {NULL, NULL}, fine = NULL, child = NULL, one;
    weftUniqueId id, own;
    int value = 5;
    CHECK_OK(weftCommInitAll(&one, 1, NULL));
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGetUniqueId(&own));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommInitRank(&fine, 1, own, 0));
    CHECK_OK(weftCommInitRank(&twice[0], 2, id, 1));
    CHECK_OK(weftCommInitRank(&twice[1], 2, id, 1));
    CHECK_OK(weftCommSplit(one, 0, 0, &child, NULL));
    CHECK_OK(sum_ints(&value, 1, one));
    CHECK_ERROR(weftGroupEnd(), "mismatch.rank-twice");
    CHECK(call_count() == 5);
    check_succeeded(0, 1);
    CHECK(outcome_of(1) == weftMismatch && outcome_of(2) == weftMismatch);
    check_succeeded(3, 5);
    CHECK(fine && child && value == 5);
    CHECK_OK(weftCommDestroy(fine));
    CHECK_OK(weftCommDestroy(child));
    /* On one that has ended nothing begins. */
    CHECK_OK(weftCommFinalize(one));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommSplit(one, 0, 0, &child, NULL));
    CHECK_OK(sum_ints(&value, 1, one));
    CHECK_ERROR(weftGroupEnd(), "usage.finalized");
    CHECK(outcome_of(0) == weftInvalidUsage && outcome_of(1) == weftInvalidUsage);
    CHECK_OK(weftCommDestroy(one));
}

static weftResult_t awaited(uint64_t call) {
    weftResult_t result = outcome_of(call);
    while (result == weftInProgress) {
        nap(1);
        result = outcome_of(call);
    }
    return result;
}

/* Each rank's own part in place. */
static weftResult_t gather_some(size_t count, int rank, weftStream_t stream) {
    static int parts[2][4];
    return weftAllGather(parts[rank] + (size_t)rank * count, parts[rank], count, weftInt32, comms[rank], stream);
}

static void calls_in_streams(void) {
    begin_with(2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(gather_some(1, 0, streams[0]));
    CHECK_OK(gather_some(2, 0, streams[0]));
    CHECK_OK(gather_some(1, 0, streams[0]));
    CHECK_OK(weftBarrier(comms[0], streams[0]));
    CHECK_OK(weftGroupEnd());
    CHECK(outcome_of(0) == weftInProgress && outcome_of(3) == weftInProgress); /* rank 1 has not called */
    CHECK_OK(gather_some(1, 1, NULL));
    CHECK(awaited(0) == weftSuccess);
    CHECK(outcome_of(1) == weftInProgress && outcome_of(3) == weftInProgress);
    CHECK_CODE(gather_some(1, 1, NULL), weftMismatch);
    CHECK(awaited(1) == weftMismatch && awaited(3) == weftMismatch);
    check_failed(3, weftMismatch, "call 3 of the group, weftBarrier on communicator",
                 "call 1 of the group, weftAllGather");
    CHECK_ERROR(weftStreamWait(streams[0], WEFT_STREAM_ALL, -1), "mismatch.count");
    CHECK_TEXT(weftGetLastError(comms[0]), "call 1 of the group");
    end_with(2);
}

static void prepared_calls(void) {
    static int values[2][2];
    weftPrepared_t several, single;
    int rank;
    begin_with(2);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftBcast(values[rank], 1, weftInt32, 0, comms[rank], NULL));
        CHECK_ERROR(weftBcast(NULL, 1, weftInt32, 0, comms[rank], NULL), "argument.null");
    }
    CHECK_OK(weftGroupPrepare(&several));
    CHECK(call_count() == 4);
    CHECK(outcome_of(0) == weftSuccess && outcome_of(1) == weftInvalidArgument);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftAllReduce(values[0], values[0], 1, weftInt32, weftSum, comms[0], NULL));
    CHECK_OK(weftGroupPrepare(&single));
    CHECK_OK(weftPreparedStart(several));
    CHECK(call_count() == 4);
    CHECK(outcome_of(0) == weftSuccess && outcome_of(2) == weftSuccess && outcome_of(3) == weftInvalidArgument);
    CHECK_OK(weftGroupStart()); /* within a group it is one call */
    CHECK_OK(weftBarrier(comms[0], NULL));
    CHECK_OK(weftPreparedStart(several));
    CHECK_OK(weftBarrier(comms[1], NULL));
    CHECK_ERROR(weftGroupEnd(), "mismatch.call");
    CHECK(call_count() == 3);
    check_failed(1, weftMismatch, "call 1 of the group, weftPreparedStart on communicator 0x", "called barrier");
    CHECK_ERROR(weftPreparedStart(single), "mismatch.call");
    CHECK(call_count() == 1);
    check_failed(0, weftMismatch, "call 0 of the group, weftAllReduce on communicator 0x", "the communicator is dead");
    end_with(2);
    CHECK_ERROR(weftPreparedStart(several), "argument.communicator");
    CHECK(outcome_of(2) == weftInvalidArgument);
    CHECK_OK(weftPreparedDestroy(several));
    CHECK_OK(weftPreparedDestroy(single));
}

static void not_prepared(void) {
    weftComm_t one, child = NULL;
    weftPrepared_t prepared;
    CHECK_OK(weftCommInitAll(&one, 1, NULL));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommSplit(one, 0, 0, &child, NULL));
    CHECK_ERROR(weftGroupPrepare(&prepared), "group.not-preparable");
    check_failed(0, weftInvalidUsage, "call 0 of the group, weftCommSplit: ", "makes a communicator");
    CHECK_OK(weftCommDestroy(one));
}

static void persistent_message(void) {
    weftResult_t result;
    const char* message = NULL;
    begin_with(2);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftBarrier(comms[0], streams[0]));
    CHECK_OK(weftGroupEnd());
    CHECK_OK(weftGroupGetCallError(0, &result, &message));
    CHECK(result == weftInProgress && *message == 0);
    CHECK_CODE(gather_some(1, 1, NULL), weftMismatch);
    CHECK(awaited(0) == weftMismatch);
    CHECK(*message == 0);
    check_failed(0, weftMismatch, "call 0 of the group, weftBarrier", "all_gather");
    CHECK_CODE(weftStreamWait(streams[0], WEFT_STREAM_ALL, -1), weftMismatch);
    end_with(2);
}

/* Adds, and carries out groups on a communicator of its own: one without calls, one of three. */
static void add_and_group(const void* left, const void* right, void* result, size_t count, weftDataType_t type,
                          void* context) {
    weftComm_t own = *(weftComm_t*)context;
    size_t i;
    int call;
    (void)type;
    CHECK_OK(weftGroupStart());
    for (call = 0; call < 3; ++call) CHECK_OK(weftBarrier(own, NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 3);
    check_succeeded(0, 3);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftGroupEnd());
    CHECK(call_count() == 0);
    for (i = 0; i < count; ++i) ((int*)result)[i] = ((const int*)left)[i] + ((const int*)right)[i];
}
static void groups_in_functions(void) {
    static int values[2] = {1, 2};
    weftComm_t own[2];
    weftRedOp_t op[2];
    weftPrepared_t prepared;
    int rank, round;
    begin_with(2);
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftCommInitAll(&own[rank], 1, NULL));
        CHECK_OK(weftRedOpCreate(&op[rank], add_and_group, &own[rank], weftInt32, 1, comms[rank]));
    }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank)
        CHECK_OK(weftAllReduce(&values[rank], &values[rank], 1, weftInt32, op[rank], comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(values[0] == 3 && values[1] == 3);
    CHECK(call_count() == 2);
    check_succeeded(0, 2);
    /* One call, which starts without a copy: the other rank's is in a stream. */
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, op[0], comms[0], NULL));
    CHECK_OK(weftGroupPrepare(&prepared));
    for (round = 0; round < 2; ++round) {
        CHECK_OK(weftAllReduce(&values[1], &values[1], 1, weftInt32, op[1], comms[1], streams[1]));
        CHECK_OK(weftPreparedStart(prepared));
        CHECK_OK(weftStreamWait(streams[1], WEFT_STREAM_ALL, -1));
        CHECK(call_count() == 1);
        check_succeeded(0, 1);
    }
    CHECK(values[0] == 12 && values[1] == 12);
    CHECK_OK(weftPreparedDestroy(prepared));
    end_with(2);
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(own[rank]));
}

int main(void) {
    setenv("WEFT_DEBUG", "NONE", 1);
    run_case("before any group there are no calls to ask of", before_any_group);
    run_case("refused calls have numbers and sentences, inner groups' too", refused_calls);
    run_case("of many calls on several communicators the failing one is named", one_failing_call_of_many);
    run_case("calls that are carried out as one fail as one", coalesced_calls);
    run_case("the message that differs or has no counterpart is named", messages);
    run_case("communicators to be made are calls of the group", communicators_to_be_made);
    run_case("outstanding calls of streams are in progress, and may fail later", calls_in_streams);
    run_case("prepared calls have statuses like their group's", prepared_calls);
    run_case("calls of a group that cannot be prepared are refused with it", not_prepared);
    run_case("the error text that a caller asked for stays when a stream goes on", persistent_message);
    run_case("calls of a reduction's function are a group before the one that it is in", groups_in_functions);
    return summary();
}
