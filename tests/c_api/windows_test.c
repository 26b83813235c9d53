/* windows_test.c: windows and one-sided calls, called by a C program: ranks of one thread in groups and on streams.
 * Tested: every wrong argument, and the error of signals that do not come. Random ones: tests/comm. */
#include "streams.h"

enum { count = 5, large = 300000 };

static int parts[ranks][2 * large];
static weftWindow_t windows[ranks];

static void open_windows(void) {
    int rank;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(
            weftCommWindowRegister(comms[rank], parts[rank], sizeof parts[rank], &windows[rank], WEFT_WIN_DEFAULT));
    CHECK_OK(weftGroupEnd());
}
static void close_windows(void) {
    int rank;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommWindowDeregister(comms[rank], windows[rank]));
    CHECK_OK(weftGroupEnd());
}
static void begin_with_windows(void) {
    memset(parts, 0, sizeof parts);
    begin_with(ranks);
    open_windows();
}
static void end_with_windows(void) {
    close_windows();
    end_with(ranks);
}

static weftResult_t wait_for(int rank, int peer, int signals, int index, int context, weftStream_t stream) {
    weftWaitSignalDesc_t what;
    what.opCnt = signals;
    what.peer = peer;
    what.sigIdx = index;
    what.ctx = context;
    return weftWaitSignal(1, &what, comms[rank], stream);
}

/* Each rank puts `elements` into the next one's part, behind `from` elements. */
static void ring(size_t elements, size_t from) {
    static int in[ranks][large];
    size_t i;
    int rank;
    memset(parts, 0, sizeof parts);
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < elements; ++i) in[rank][i] = rank * 1000003 + (int)i;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(weftPutSignal(in[rank], elements, weftInt32, (rank + 1) % ranks, windows[rank], from * sizeof(int), 3,
                               1, 0, comms[rank], NULL));
        CHECK_OK(wait_for(rank, (rank + ranks - 1) % ranks, 1, 3, 1, NULL));
    }
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank) {
        const int previous = (rank + ranks - 1) % ranks;
        int wrong = 0;
        for (i = 0; i < elements; ++i) wrong += parts[rank][from + i] != previous * 1000003 + (int)i;
        CHECK(wrong == 0);
        if (from + elements < 2 * large) CHECK(parts[rank][from + elements] == 0);
    }
}

static void puts_in_a_ring(void) {
    begin_with_windows();
    ring(1, 0);
    ring(0, 0);
    ring(count, 0);
    ring(200, 7);
    ring(large, 11);
    end_with_windows();
}

static void gets_see_puts(void) {
    static int in[large], out[large], half[2];
    int rank, i;
    begin_with_windows();
    for (i = 0; i < large; ++i) in[i] = i * 3;
    for (i = 0; i < 2 * large; ++i) parts[2][i] = -i;
    /* Rank 0 with rank 2's part; others are in calls, as between hosts they must be. */
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftPut(in, large, weftInt32, 2, windows[0], 4, comms[0], NULL));
    CHECK_OK(weftGet(out, large, weftInt32, 2, windows[0], 4, comms[0], NULL));
    CHECK_OK(weftGet(half, 2, weftInt32, 2, windows[0], 4 * large, comms[0], NULL));
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftBarrier(comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(memcmp(in, out, sizeof in) == 0);
    CHECK(half[0] == in[large - 1] && half[1] == -(large + 1));
    CHECK(parts[2][0] == 0 && parts[2][large + 1] == -(large + 1));
    /* A rank's own part needs no peer, and the window knows where it is. */
    for (rank = 0; rank < ranks; ++rank) {
        void* part = NULL;
        CHECK_OK(weftWinGetUserPtr(comms[rank], windows[rank], &part));
        CHECK(part == parts[rank]);
        CHECK_OK(weftPutSignal(in, count, weftInt32, rank, windows[rank], 40, 0, 0, 0, comms[rank], NULL));
        CHECK_OK(wait_for(rank, rank, 1, 0, 0, NULL));
        CHECK(parts[rank][11] == 3 && parts[rank][14] == 12);
        CHECK_OK(weftGet(out, 2, weftInt32, rank, windows[rank], 44, comms[rank], NULL));
        CHECK(out[0] == 3 && out[1] == 6);
    }
    end_with_windows();
}

static void signals_are_counters(void) {
    weftWaitSignalDesc_t several[4] = {{1, 1, 5, 0}, {2, 1, 5, 2}, {1, 1, 5, 0}, {0, 2, 0, 0}};
    int i;
    begin_with_windows();
    CHECK_OK(weftGroupStart());
    for (i = 0; i < 5; ++i) CHECK_OK(weftSignal(0, 5, 0, 0, comms[1], NULL));
    for (i = 0; i < 2; ++i) CHECK_OK(weftSignal(0, 5, 2, 0, comms[1], NULL));
    /* Two of the five in two descriptions, both of the other context. */
    CHECK_OK(weftWaitSignal(4, several, comms[0], NULL));
    CHECK_OK(wait_for(0, 1, 2, 5, 0, NULL));
    CHECK_OK(weftWaitSignal(0, NULL, comms[2], NULL));
    CHECK_OK(weftGroupEnd());
    /* One is left. */
    CHECK_OK(wait_for(0, 1, 1, 5, 0, NULL));
    CHECK_OK(wait_for(0, 1, 0, 5, 0, NULL));
    end_with_windows();
}

static void one_sided_calls_on_streams(void) {
    static int in[ranks][count], sums[ranks];
    int rank, i;
    begin_with_windows();
    for (rank = 0; rank < ranks; ++rank) {
        for (i = 0; i < count; ++i) in[rank][i] = 100 * rank + i;
        sums[rank] = 1;
    }
    /* Each rank waits before any rank puts; the calls of a stream stay in their order, beside an all-reduce. */
    for (rank = 0; rank < ranks; ++rank) {
        const int previous = (rank + ranks - 1) % ranks;
        if (rank % 2) CHECK_OK(wait_for(rank, previous, 1, 0, 0, streams[rank]));
        CHECK_OK(weftPutSignal(in[rank], count, weftInt32, (rank + 1) % ranks, windows[rank], 0, 0, 0, 0, comms[rank],
                               streams[rank]));
        CHECK_OK(weftAllReduce(&sums[rank], &sums[rank], 1, weftInt32, weftSum, comms[rank], streams[rank]));
        if (!(rank % 2)) CHECK_OK(wait_for(rank, previous, 1, 0, 0, streams[rank]));
    }
    wait_all(ranks);
    for (rank = 0; rank < ranks; ++rank) {
        CHECK(sums[rank] == ranks);
        CHECK(parts[rank][4] == 100 * ((rank + ranks - 1) % ranks) + 4);
    }
    /* A put that does not fit is the stream's error, and the communicator lives. */
    CHECK_OK(weftPut(in[0], count, weftInt32, 1, windows[0], sizeof parts[0] - 4, comms[0], streams[0]));
    CHECK_ERROR_NAMES(weftStreamWait(streams[0], WEFT_STREAM_ALL, -1), "window.range", "rank 1");
    end_with_windows();
}

static void prepared_puts(void) {
    static int in[ranks];
    weftPrepared_t prepared;
    int rank, round;
    begin_with_windows();
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(
            weftPutSignal(&in[rank], 1, weftInt32, (rank + 1) % ranks, windows[rank], 0, 0, 0, 0, comms[rank], NULL));
        CHECK_OK(wait_for(rank, (rank + ranks - 1) % ranks, 1, 0, 0, NULL));
    }
    CHECK_OK(weftGroupPrepare(&prepared));
    for (round = 0; round < 20; ++round) {
        for (rank = 0; rank < ranks; ++rank) in[rank] = 10 * round + rank;
        CHECK_OK(weftPreparedStart(prepared));
        for (rank = 0; rank < ranks; ++rank) CHECK(parts[rank][0] == 10 * round + (rank + ranks - 1) % ranks);
    }
    CHECK_OK(weftPreparedDestroy(prepared));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommWindowDeregister(comms[0], windows[0]));
    CHECK_ERROR(weftGroupPrepare(&prepared), "group.not-preparable");
    end_with_windows();
}

/* Nothing is written, no rank waits, and a right call still works. */
static void wrong_arguments(void) {
    weftWaitSignalDesc_t bad = {1, 1, 0, 0};
    weftWindow_t other = NULL;
    weftComm_t comm, alone;
    int a[4] = {1, 2, 3, 4};
    void* place;
    begin_with(ranks);
    comm = comms[0];
#define REFUSES(call, part) CHECK_FAILS(call, weftInvalidArgument, part)
    CHECK_ERROR(weftSignal(1, 0, 0, 0, comm, NULL), "window.none");
    CHECK_ERROR_NAMES(weftCommWindowRegister(comm, a, 4, NULL, 0), "argument.null", "win");
    CHECK_ERROR_NAMES(weftCommWindowRegister(comm, NULL, 4, &other, 0), "argument.null", "buff");
    CHECK_ERROR(weftCommWindowRegister(comm, a, ~(size_t)0, &other, 0), "argument.count");
    CHECK_ERROR_NAMES(weftCommWindowRegister(comm, a, 4, &other, 64), "argument.value", "winFlags");
    CHECK_ERROR(weftCommWindowRegister(NULL, a, 4, &other, 0), "argument.communicator");
    CHECK(other == NULL);
    open_windows();
#define PUT(type, peer, window, offset) weftPutSignal(a, 2, type, peer, window, offset, 0, 0, 0, comm, NULL)
    CHECK_ERROR_NAMES(PUT(weftInt32, ranks, windows[0], 0), "argument.rank", "peer");
    CHECK_ERROR_NAMES(PUT(weftInt32, -1, windows[0], 0), "argument.rank", "peer");
    CHECK_ERROR_NAMES(PUT((weftDataType_t)99, 1, windows[0], 0), "argument.datatype", "datatype");
    CHECK_ERROR_NAMES(PUT(weftInt32, 1, NULL, 0), "argument.null", "peerWin");
    CHECK_ERROR(PUT(weftInt32, 1, (weftWindow_t)a, 0), "argument.handle");
    CHECK_ERROR(PUT(weftInt32, 1, windows[1], 0), "argument.handle");
    CHECK_ERROR_NAMES(PUT(weftInt32, 1, windows[0], sizeof parts[1] - 7), "window.range", "2399993");
    CHECK_ERROR_NAMES(PUT(weftInt32, 1, windows[0], ~(size_t)0 - 3), "window.range", "2400000");
    CHECK_ERROR_NAMES(weftPut(NULL, 1, weftInt32, 1, windows[0], 0, comm, NULL), "argument.null", "localbuff");
    CHECK_ERROR(weftPut(a, ~(size_t)0, weftInt32, 1, windows[0], 0, comm, NULL), "argument.count");
    CHECK_ERROR(weftPut(a, 1, weftInt32, 1, windows[0], 0, NULL, NULL), "argument.communicator");
    CHECK_ERROR(weftPut(a, 1, weftInt32, 1, windows[0], 0, comm, (weftStream_t)a), "argument.stream");
    CHECK_ERROR_NAMES(weftGet(NULL, 1, weftInt32, 1, windows[0], 0, comm, NULL), "argument.null", "localbuff");
    CHECK_ERROR_NAMES(weftGet(a, 1, weftInt32, 1, windows[0], sizeof parts[1], comm, NULL), "window.range", "read");
    /* A rank's own part, and memory in it: the same place, or another one. */
    memset(parts[0], 0, sizeof parts[0]);
    memcpy(parts[0], a, sizeof a);
    CHECK_ERROR_NAMES(weftPut(parts[0], 3, weftInt32, 0, windows[0], 4, comm, NULL), "argument.overlap", "localbuff");
    CHECK_ERROR(weftPut(parts[0] + 2, 3, weftInt32, 0, windows[0], 0, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftGet(parts[0] + 1, large, weftInt32, 0, windows[0], 0, comm, NULL), "argument.overlap");
    CHECK_OK(weftPut(parts[0], large, weftInt32, 0, windows[0], 0, comm, NULL));
    CHECK_OK(weftGet(parts[0] + 1, 1, weftInt32, 0, windows[0], 4, comm, NULL));
    CHECK_OK(weftPut(parts[0] + 1, 0, weftInt32, 0, windows[0], 4, comm, NULL));
    CHECK(memcmp(parts[0], a, sizeof a) == 0 && parts[0][4] == 0);
    CHECK_OK(weftPut(parts[0], 2, weftInt32, 0, windows[0], 8, comm, NULL));
    CHECK(parts[0][1] == 2 && parts[0][2] == 1 && parts[0][3] == 2);
    CHECK_ERROR_NAMES(weftPutSignal(a, 1, weftInt32, 1, windows[0], 0, WEFT_SIGNALS, 0, 0, comm, NULL),
                      "argument.value", "sigIdx");
    CHECK_ERROR_NAMES(weftSignal(1, -1, 0, 0, comm, NULL), "argument.value", "sigIdx");
    CHECK_ERROR_NAMES(weftSignal(1, 0, WEFT_SIGNAL_CONTEXTS, 0, comm, NULL), "argument.value", "ctx");
    CHECK_ERROR_NAMES(weftSignal(1, 0, 0, 1, comm, NULL), "argument.value", "flags");
    CHECK_ERROR_NAMES(weftWaitSignal(-1, &bad, comm, NULL), "argument.value", "nDesc");
    CHECK_ERROR_NAMES(weftWaitSignal(1, NULL, comm, NULL), "argument.null", "signalDescs");
    bad.peer = ranks;
    CHECK_ERROR_NAMES(weftWaitSignal(1, &bad, comm, NULL), "argument.rank", "peer of a signalDesc");
    bad.peer = 1;
    bad.opCnt = -1;
    CHECK_ERROR_NAMES(weftWaitSignal(1, &bad, comm, NULL), "argument.value", "opCnt of a signalDesc");
    bad.opCnt = 1;
    bad.sigIdx = 99;
    CHECK_ERROR_NAMES(weftWaitSignal(1, &bad, comm, NULL), "argument.value", "sigIdx");
    CHECK_ERROR_NAMES(weftCommWindowDeregister(comm, NULL), "argument.null", "win");
    CHECK_ERROR(weftCommWindowDeregister(comm, windows[2]), "argument.handle");
    CHECK_ERROR_NAMES(weftWinGetUserPtr(comm, windows[0], NULL), "argument.null", "outUserPtr");
    CHECK_ERROR_NAMES(weftWinGetUserPtr(comm, NULL, &place), "argument.null", "win");
    CHECK_OK(weftCommInitAll(&alone, 1, NULL));
    CHECK_OK(weftCommWindowRegister(alone, a, sizeof a, &other,
                                    1 | 2 /* NCCL_WIN_COLL_SYMMETRIC, NCCL_WIN_STRICT_ORDERING */));
    CHECK_ERROR(weftPut(a, 1, weftInt32, 0, other, 0, comm, NULL), "argument.handle");
    CHECK_OK(weftCommWindowDeregister(alone, other));
    CHECK_ERROR(weftPut(a, 1, weftInt32, 0, other, 0, alone, NULL), "argument.handle");
    CHECK_ERROR(weftCommWindowDeregister(alone, other), "argument.handle");
    CHECK_OK(weftCommDestroy(alone));
    CHECK_ERROR(weftPut(a, 1, weftInt32, 0, other, 0, alone, NULL), "argument.communicator");
    CHECK(parts[1][0] == 0 && a[0] == 1);
    ring(count, 0);
    end_with_windows();
}

/* A rank may pass no memory; several windows have different sizes, and data of one never gets into another. */
static void windows_of_different_sizes(void) {
    static int in[count] = {1, 2, 3, 4, 5};
    weftWindow_t more[ranks];
    int rank, got = 0;
    begin_with_windows();
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftCommWindowRegister(comms[rank], rank ? parts[rank] + large : NULL, (size_t)rank * sizeof(int),
                                        &more[rank], WEFT_WIN_DEFAULT));
    CHECK_OK(weftGroupEnd());
    CHECK_FAILS(weftPut(in, 1, weftInt32, 0, more[1], 0, comms[1], NULL), weftInvalidArgument, "which has 0 bytes");
    CHECK_FAILS(weftPut(in, 3, weftInt32, 2, more[1], 0, comms[1], NULL), weftInvalidArgument, "which has 8 bytes");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftPut(in, 2, weftInt32, 2, more[1], 0, comms[1], NULL));
    CHECK_OK(weftPutSignal(in, 0, weftInt32, 0, more[1], 0, 0, 0, 0, comms[1], NULL));
    CHECK_OK(weftPutSignal(in, 1, weftInt32, 2, windows[1], 0, 0, 0, 0, comms[1], NULL));
    CHECK_OK(wait_for(0, 1, 1, 0, 0, NULL));
    CHECK_OK(wait_for(2, 1, 1, 0, 0, NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(parts[2][large] == 1 && parts[2][large + 1] == 2 && parts[2][large + 2] == 0 && parts[2][0] == 1);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommWindowDeregister(comms[rank], more[rank]));
    CHECK_OK(weftGroupEnd());
    CHECK_ERROR(weftGet(&got, 1, weftInt32, 2, more[1], 0, comms[1], NULL), "argument.handle");
    ring(count, 0);
    end_with_windows();
}

static void what_does_not_come(void) {
    weftCallConfig_t config = WEFT_CALL_CONFIG_INITIALIZER;
    int a = 1;
    config.timeoutMs = 200;
    begin_with_windows();
    CHECK_OK(weftSignal(1, 2, 3, 0, comms[1], NULL)); /* to itself: another's do not count */
    CHECK_OK(weftCommSetCallConfig(comms[1], &config));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSignal(1, 2, 3, 0, comms[0], NULL));
    CHECK_OK(wait_for(1, 0, 2, 2, 3, NULL));
    CHECK_ERROR(weftGroupEnd(), "timeout.message");
    CHECK_ERROR(weftPut(&a, 1, weftInt32, 0, windows[1], 0, comms[1], NULL), "timeout.message");
    /* The window ends all the same, without the others. */
    CHECK_OK(weftCommWindowDeregister(comms[1], windows[1]));
    CHECK_ERROR(weftPut(&a, 1, weftInt32, 0, windows[1], 0, comms[1], NULL), "argument.handle");
    end_with(ranks);
}

static void a_registration_that_some_ranks_miss(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftUniqueId id;
    int rank;
    config.timeoutMs = 200;
    CHECK_OK(weftGetUniqueId(&id));
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 3; ++rank) CHECK_OK(weftCommInitRankConfig(&comms[rank], 3, id, rank, &config));
    CHECK_OK(weftGroupEnd());
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < 2; ++rank)
        CHECK_OK(weftCommWindowRegister(comms[rank], parts[rank], 8, &windows[rank], WEFT_WIN_DEFAULT));
    CHECK_ERROR(weftGroupEnd(), "timeout.collective");
    CHECK_TEXT(weftGetLastError(comms[0]), "rank 2 ");
    for (rank = 0; rank < 3; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
    /* Or that meets something else. */
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftCommWindowRegister(comms[0], parts[0], 8, &windows[0], WEFT_WIN_DEFAULT));
    CHECK_OK(weftBarrier(comms[1], NULL));
    CHECK_ERROR(weftGroupEnd(), "mismatch.call");
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}

int main(void) {
    run_case("puts with signals in a ring", puts_in_a_ring);
    run_case("a get sees its rank's puts, and the data beside them", gets_see_puts);
    run_case("signals are counters that waiting takes from", signals_are_counters);
    run_case("one-sided calls on streams keep the order of their communicator", one_sided_calls_on_streams);
    run_case("prepared puts are started many times", prepared_puts);
    run_case("windows of different sizes", windows_of_different_sizes);
    run_case("wrong arguments are refused before anything is written", wrong_arguments);
    run_case("a signal that does not come is named at the deadline", what_does_not_come);
    run_case("a registration that some ranks miss names them", a_registration_that_some_ranks_miss);
    return summary();
}
