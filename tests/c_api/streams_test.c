/* streams_test.c: calls on streams of host memory. One thread drives all ranks. */
#include "streams.h"

static void calls_run_in_the_order_of_their_stream(void) {
    static int first[ranks][many], second[ranks][many], third[ranks][many * ranks];
    int rank, i;
    begin_with(ranks);
    for (i = 0; i < many; ++i)
        for (rank = 0; rank < ranks; ++rank) first[rank][i] = rank * many + i;
    for (rank = 0; rank < ranks; ++rank) {
        weftStream_t stream = streams[rank];
        CHECK_OK(weftAllReduce(first[rank], second[rank], many, weftInt32, weftSum, comms[rank], stream));
        CHECK_OK(weftAllReduce(second[rank], second[rank], many, weftInt32, weftMax, comms[rank], stream));
        CHECK_OK(weftBroadcast(second[rank], second[rank], 1, weftInt32, 2, comms[rank], stream));
        CHECK_OK(weftAllGather(second[rank], third[rank], many, weftInt32, comms[rank], stream));
        CHECK_OK(weftBarrier(comms[rank], stream));
        CHECK_OK(weftAllReduce(third[rank], third[rank], many * ranks, weftInt32, weftSum, comms[rank], stream));
    }
    wait_all(ranks);
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < many * ranks; ++i) {
            const int sum = many * (ranks * (ranks - 1) / 2) + ranks * (i % many);
            if (third[rank][i] == ranks * sum) continue;
            CHECK(third[rank][i] == ranks * sum);
            i = many * ranks;
        }
    end_with(ranks);
}

static void messages_and_uneven_parts_go_through_streams(void) {
    static int out[ranks][ranks], in[ranks][ranks], ring[ranks];
    int rank, peer;
    begin_with(ranks);
    for (rank = 0; rank < ranks; ++rank) {
        /* Gone when the call has returned. */
        size_t sends[ranks], receives[ranks], places[ranks];
        for (peer = 0; peer < ranks; ++peer) {
            sends[peer] = receives[peer] = (rank + peer) % 2;
            places[peer] = (size_t)peer;
            out[rank][peer] = 100 * rank + peer;
            in[rank][peer] = -1;
        }
        ring[rank] = -1;
        CHECK_OK(
            weftAlltoAllv(out[rank], sends, places, in[rank], receives, places, weftInt32, comms[rank], streams[rank]));
        memset(sends, 255, sizeof sends);
        CHECK_OK(weftSendRecv(&out[rank][0], 1, (rank + 1) % ranks, &ring[rank], 1, (rank + ranks - 1) % ranks,
                              weftInt32, comms[rank], streams[rank]));
    }
    wait_all(ranks);
    for (rank = 0; rank < ranks; ++rank) {
        for (peer = 0; peer < ranks; ++peer) CHECK(in[rank][peer] == ((rank + peer) % 2 ? 100 * peer + rank : -1));
        CHECK(ring[rank] == 100 * ((rank + ranks - 1) % ranks));
    }
    end_with(ranks);
}

/* A group is one piece of work for a stream, so one stream can be all ranks'. */
static void one_stream_serves_all_ranks_of_a_group(void) {
    int values[ranks], rank, round;
    uint64_t mark = 77;
    begin_with(ranks);
    CHECK_OK(weftStreamMark(streams[0], &mark));
    CHECK(mark == 0);
    for (rank = 0; rank < ranks; ++rank) values[rank] = 1;
    for (round = 0; round < 5; ++round) {
        CHECK_OK(weftGroupStart());
        for (rank = 0; rank < ranks; ++rank)
            CHECK_OK(weftAllReduce(&values[rank], &values[rank], 1, weftInt32, weftSum, comms[rank], streams[0]));
        CHECK_OK(weftGroupEnd());
    }
    CHECK_OK(weftStreamMark(streams[0], &mark));
    CHECK(mark == 5);
    CHECK_OK(weftStreamWait(streams[0], mark, -1));
    for (rank = 0; rank < ranks; ++rank) CHECK(values[rank] == 1024);
    end_with(ranks);
}

static void a_communicator_keeps_its_order_across_streams(void) {
    weftStream_t others[ranks];
    static int64_t values[ranks][many];
    int rank, round, i;
    begin_with(ranks);
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(weftStreamCreateWithPriority(&others[rank], WEFT_STREAM_LOWEST_PRIORITY));
        for (i = 0; i < many; ++i) values[rank][i] = rank == i % ranks;
    }
    for (round = 0; round < 9; ++round)
        for (rank = 0; rank < ranks; ++rank)
            CHECK_OK(weftAllReduce(values[rank], values[rank], many, weftInt64, round % 3 == 2 ? weftMax : weftSum,
                                   comms[rank], (round + rank) % 2 ? streams[rank] : others[rank]));
    /* One without a stream comes last. */
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllReduce(values[rank], values[rank], many, weftInt64, weftSum, comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank)
        for (i = 0; i < many; ++i)
            if (values[rank][i] != 4096) {
                CHECK(values[rank][i] == 4096); /* 4^5 * 4, sums but for the three maxima */
                break;
            }
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftStreamDestroy(others[rank]));
    end_with(ranks);
}

static void waiting_has_an_end_of_its_own(void) {
    int values[2] = {1, 2};
    uint64_t mark;
    begin_with(2);
    CHECK_OK(weftStreamTest(streams[0], WEFT_STREAM_ALL));
    CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, comms[0], streams[0]));
    CHECK_OK(weftStreamMark(streams[0], &mark));
    CHECK_CODE(weftStreamTest(streams[0], mark), weftInProgress);
    CHECK_ERROR(weftStreamWait(streams[0], mark, 20), "timeout.stream");
    CHECK_OK(weftStreamTest(streams[0], 0));
    CHECK_OK(weftAllReduce(&values[1], &values[1], 1, weftInt32, weftSum, comms[1], NULL));
    CHECK_OK(weftStreamWait(streams[0], mark, -1));
    CHECK_OK(weftStreamTest(streams[0], mark));
    CHECK(values[0] == 3 && values[1] == 3);
    end_with(2);
}

static void an_error_is_told_once_and_the_stream_goes_on(void) {
    static int values[ranks][64];
    int rank;
    weftResult_t state;
    begin_with(2);
    for (rank = 0; rank < 2; ++rank) {
        CHECK_OK(weftAllReduce(values[rank], values[rank], 60 + (size_t)rank, weftInt32, weftSum, comms[rank],
                               streams[rank]));
        CHECK_OK(weftBarrier(comms[rank], streams[rank]));
    }
    for (rank = 0; rank < 2; ++rank) {
        CHECK_ERROR(weftStreamWait(streams[rank], WEFT_STREAM_ALL, -1), "mismatch.count");
        CHECK_ERROR(weftStreamTest(streams[rank], WEFT_STREAM_ALL), "mismatch.count");
        CHECK_OK(weftStreamTest(streams[rank], WEFT_STREAM_ALL));
        CHECK_OK(weftCommGetAsyncError(comms[rank], &state));
        CHECK(state == weftMismatch);
        CHECK_TEXT(weftGetLastError(comms[rank]), "60");
        CHECK_OK(weftCommDestroy(comms[rank]));
    }
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    for (rank = 0; rank < 2; ++rank) CHECK_OK(weftBarrier(comms[rank], streams[rank]));
    wait_all(2);
    /* The program does not ask: destroying returns the error. */
    for (rank = 0; rank < 2; ++rank)
        CHECK_OK(weftAllReduce(values[rank], values[rank], 1 + (size_t)rank, weftInt32, weftSum, comms[rank],
                               streams[rank]));
    for (rank = 0; rank < 2; ++rank) {
        CHECK_ERROR(weftStreamDestroy(streams[rank]), "mismatch.count");
        CHECK_FAILS(weftStreamDestroy(streams[rank]), weftInvalidArgument, "destroyed before");
        CHECK_OK(weftCommDestroy(comms[rank]));
    }
}

static void destroying_a_communicator_waits_and_aborting_does_not(void) {
    int values[2] = {1, 2}, i;
    begin_with(2);
    for (i = 0; i < 2; ++i)
        CHECK_OK(weftAllReduce(&values[i], &values[i], 1, weftInt32, weftSum, comms[i], streams[i]));
    for (i = 0; i < 2; ++i) CHECK_OK(weftCommDestroy(comms[i]));
    CHECK(values[0] == 3 && values[1] == 3);
    wait_all(2);
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    for (i = 0; i < 3; ++i)
        CHECK_OK(weftAllReduce(&values[0], &values[0], 1, weftInt32, weftSum, comms[0], streams[i % 2]));
    nap(5);
    CHECK_OK(weftCommAbort(comms[0]));
    for (i = 0; i < 3; ++i) CHECK(weftStreamWait(streams[i % 2], WEFT_STREAM_ALL, -1) != weftSuccess);
    CHECK_ERROR(weftBarrier(comms[1], NULL), "abort.remote");
    CHECK_OK(weftCommDestroy(comms[1]));
    CHECK_OK(weftCommInitAll(comms, 2, NULL));
    for (i = 0; i < 2; ++i) CHECK_OK(weftBarrier(comms[i], streams[i]));
    wait_all(2);
    end_with(2);
}

static void wrong_streams_are_refused(void) {
    int value = 0, on_the_stack = 0;
    uint64_t mark;
    begin_with(1);
    CHECK_ERROR(weftStreamCreate(NULL), "argument.null");
    CHECK_ERROR_NAMES(weftStreamCreateWithPriority(&streams[1], 20), "argument.value", "priority");
    CHECK(streams[1] == NULL);
    CHECK_ERROR_NAMES(weftStreamMark(streams[0], NULL), "argument.null", "mark");
    CHECK_ERROR(weftStreamMark((weftStream_t)&on_the_stack, &mark), "argument.stream");
    CHECK_ERROR(weftStreamTest(NULL, 0), "argument.null");
    CHECK_ERROR(weftBcast(&value, 1, weftInt32, 0, comms[0], (weftStream_t)&on_the_stack), "argument.stream");
    CHECK_OK(weftStreamCreate(&streams[1]));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftBarrier(comms[0], streams[0]));
    CHECK_ERROR(weftBarrier(comms[0], streams[1]), "group.streams");
    CHECK_ERROR(weftBarrier(comms[0], NULL), "group.streams");
    CHECK_OK(weftGroupEnd());
    CHECK_OK(weftStreamDestroy(streams[1]));
    CHECK_FAILS(weftBarrier(comms[0], streams[1]), weftInvalidArgument, "destroyed before");
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftBarrier(comms[0], streams[0]));
    CHECK_OK(weftStreamDestroy(streams[0]));
    CHECK_FAILS(weftGroupEnd(), weftInvalidArgument, "destroyed before");
    CHECK_OK(weftStreamDestroy(NULL));
    CHECK_OK(weftCommDestroy(comms[0]));
}

int main(void) {
    run_case("calls run in the order of their stream", calls_run_in_the_order_of_their_stream);
    run_case("messages and uneven parts go through streams", messages_and_uneven_parts_go_through_streams);
    run_case("one stream serves all ranks of a group", one_stream_serves_all_ranks_of_a_group);
    run_case("a communicator keeps its order across streams", a_communicator_keeps_its_order_across_streams);
    run_case("waiting for a stream has an end of its own", waiting_has_an_end_of_its_own);
    run_case("an error is reported once, and the stream goes on", an_error_is_told_once_and_the_stream_goes_on);
    run_case("destroying a communicator waits for streams, aborting does not",
             destroying_a_communicator_waits_and_aborting_does_not);
    run_case("wrong streams are refused", wrong_streams_are_refused);
    return summary();
}
