/* messages_test.c: sends, receives and uneven collectives, called by a C program: ranks of one thread in groups.
 * Tested: every wrong argument, and the error of messages that do not fit. Random ones: tests/comm. */
#include <time.h>

#include "check.h"

enum { ranks = 3, count = 5 };

static weftComm_t comms[ranks];

static void start_all(void) { CHECK_OK(weftCommInitAll(comms, ranks, NULL)); }
static void end_all(void) {
    int rank;
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
}

static void messages_in_any_order(void) {
    int in[ranks][2], out[ranks][2], rank;
    start_all();
    for (rank = 0; rank < ranks; ++rank) in[rank][0] = 10 * rank, in[rank][1] = 10 * rank + 1;
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        /* Two messages to the same rank arrive in order. Some ranks send first, others receive first. */
        if (rank != 1) CHECK_OK(weftSend(&in[rank][0], 1, weftInt32, next, comms[rank], NULL));
        CHECK_OK(weftRecv(&out[rank][0], 1, weftInt32, previous, comms[rank], NULL));
        CHECK_OK(weftRecv(&out[rank][1], 1, weftInt32, previous, comms[rank], NULL));
        if (rank == 1) CHECK_OK(weftSend(&in[rank][0], 1, weftInt32, next, comms[rank], NULL));
        CHECK_OK(weftSend(&in[rank][1], 1, weftInt32, next, comms[rank], NULL));
    }
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank) {
        const int previous = (rank + ranks - 1) % ranks;
        CHECK(out[rank][0] == 10 * previous && out[rank][1] == 10 * previous + 1);
    }
    end_all();
}

static void messages_beside_collectives(void) {
    int token = 41, got = 0, sums[ranks], rank;
    start_all();
    for (rank = 0; rank < ranks; ++rank) sums[rank] = rank;
    /* Rank 0 sends behind its all-reduce, rank 1 receives before it. */
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftRecv(&got, 1, weftInt32, 0, comms[1], NULL));
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllReduce(&sums[rank], &sums[rank], 1, weftInt32, weftSum, comms[rank], NULL));
    CHECK_OK(weftSend(&token, 1, weftInt32, 1, comms[0], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(got == 41);
    for (rank = 0; rank < ranks; ++rank) CHECK(sums[rank] == 3);
    end_all();
}

static void messages_to_oneself(void) {
    weftComm_t comm = NULL;
    int in[2] = {7, 8}, out[2] = {0, 0};
    CHECK_OK(weftCommInitAll(&comm, 1, NULL));
    CHECK_OK(weftSendRecv(in, 2, 0, out, 2, 0, weftInt32, comm, NULL));
    CHECK(out[0] == 7 && out[1] == 8);
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftRecv(&out[1], 1, weftInt32, 0, comm, NULL));
    CHECK_OK(weftRecv(&out[0], 1, weftInt32, 0, comm, NULL));
    CHECK_OK(weftSend(&in[0], 1, weftInt32, 0, comm, NULL));
    CHECK_OK(weftSend(&in[1], 1, weftInt32, 0, comm, NULL));
    CHECK_OK(weftSend(NULL, 0, weftInt32, 0, comm, NULL));
    CHECK_OK(weftRecv(NULL, 0, weftInt32, 0, comm, NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(out[1] == 7 && out[0] == 8);
    /* Alone it would wait for itself. */
    CHECK_ERROR_NAMES(weftSend(in, 1, weftInt32, 0, comm, NULL), "usage.self-message", "peer");
    CHECK_ERROR_NAMES(weftRecv(out, 1, weftInt32, 0, comm, NULL), "usage.self-message", "peer");
    CHECK_OK(weftBarrier(comm, NULL));
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSend(in, 1, weftInt32, 0, comm, NULL));
    CHECK_ERROR(weftGroupEnd(), "usage.self-message");
    CHECK_FAILS(weftSendRecv(in, 1, 0, out, 1, 0, weftInt32, comm, NULL), weftInvalidUsage, "is dead");
    CHECK_OK(weftCommDestroy(comm));
}

static void counts_that_differ(void) {
    int in[count] = {0}, out[count], rank;
    start_all();
    CHECK_OK(weftGroupStart());
    CHECK_OK(weftSend(in, 4, weftInt32, 1, comms[0], NULL));
    CHECK_OK(weftRecv(out, 3, weftInt32, 0, comms[1], NULL));
    CHECK_FAILS(weftGroupEnd(), weftMismatch,
                "rank 0 called weftSend with 4 int32 for rank 1, which called weftRecv with 3 int32 from rank 0");
    for (rank = 0; rank < ranks; ++rank) {
        weftResult_t error = weftSuccess;
        int look;
        /* Between hosts it takes a message. */
        for (look = 0; look < 10000 && error == weftSuccess; ++look) {
            const struct timespec nap = {0, 1000000};
            nanosleep(&nap, NULL);
            CHECK_OK(weftCommGetAsyncError(comms[rank], &error));
        }
        CHECK(error == weftMismatch);
    }
    end_all();
}

/* Part q of rank p has p + q elements, all p * 10 + q. */
static void uneven_parts(void) {
    size_t counts[ranks][ranks], places[ranks][ranks];
    int in[ranks][16], out[ranks][16], rank, peer, i;
    start_all();
    for (rank = 0; rank < ranks; ++rank) {
        size_t place = 0;
        for (peer = 0; peer < ranks; ++peer) {
            counts[rank][peer] = (size_t)(rank + peer);
            places[rank][peer] = place;
            for (i = 0; i < rank + peer; ++i) in[rank][place++] = rank * 10 + peer;
        }
        for (i = 0; i < 16; ++i) out[rank][i] = -1;
    }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAlltoAllv(in[rank], counts[rank], places[rank], out[rank], counts[rank], places[rank], weftInt32,
                               comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank)
        for (peer = 0; peer < ranks; ++peer)
            for (i = 0; i < rank + peer; ++i) CHECK(out[rank][places[rank][peer] + (size_t)i] == peer * 10 + rank);
    /* A part of each rank: to the root and back, then to all; in place on the root. */
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftGatherv(rank == 1 ? &out[1][places[1][1]] : in[rank], counts[1][rank], out[1],
                             rank == 1 ? counts[1] : NULL, rank == 1 ? places[1] : NULL, weftInt32, 1, comms[rank],
                             NULL));
    CHECK_OK(weftGroupEnd());
    for (i = 0; i < 3; ++i) CHECK(out[1][places[1][2] + (size_t)i] == in[2][i]);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftScatterv(rank == 2 ? in[2] : NULL, counts[2], places[2],
                              rank == 2 ? &in[2][places[2][2]] : out[rank], counts[2][rank], weftInt32, 2, comms[rank],
                              NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(out[0][0] == 20 && out[0][1] == 20 && out[1][0] == 21 && out[1][2] == 21);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(
            weftAllGatherv(in[rank], counts[0][rank], out[rank], counts[0], places[0], weftInt32, comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    for (rank = 0; rank < ranks; ++rank) CHECK(out[rank][0] == in[1][0] && out[rank][2] == in[2][1]);
    end_all();
}

/* Part q has q + 1 elements. */
static void uneven_sums(void) {
    const size_t counts[ranks] = {1, 2, 3};
    float in[ranks][6], out[ranks][3], factors[ranks] = {1, 10, 100};
    weftRedOp_t scaled[ranks];
    int rank, i;
    start_all();
    for (rank = 0; rank < ranks; ++rank) {
        for (i = 0; i < 6; ++i) in[rank][i] = (float)(rank + 1 + i);
        CHECK_OK(
            weftRedOpCreatePreMulSum(&scaled[rank], &factors[rank], weftFloat32, weftScalarHostImmediate, comms[rank]));
    }
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduceScatterv(in[rank], out[rank], counts, weftFloat32, scaled[rank], comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    /* 1 * x + 10 * (x + 1) + 100 * (x + 2) where x is rank 0's. */
    CHECK(out[0][0] == 321 && out[1][0] == 432 && out[1][1] == 543 && out[2][2] == 876);
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduceScatterv(in[rank], in[rank] + rank * (rank + 1) / 2, counts, weftFloat32, weftAvg,
                                    comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    CHECK(in[0][0] == 2 && in[1][1] == 3 && in[1][2] == 4 && in[2][3] == 5 && in[2][5] == 7);
    end_all();
}

/* None begins, so no rank waits, and a right call still works. */
static void wrong_arguments(void) {
    int a[16], b[16];
    const size_t counts[ranks] = {2, 2, 2}, places[ranks] = {0, 2, 4}, same[ranks] = {0, 1, 4},
                 huge[ranks] = {0, 2, ~(size_t)0};
    weftComm_t comm;
    int rank;
    start_all();
    comm = comms[1];
#define REFUSES(call, part) CHECK_FAILS(call, weftInvalidArgument, part)
    CHECK_ERROR_NAMES(weftSend(a, 1, weftInt32, ranks, comm, NULL), "argument.rank", "peer");
    CHECK_ERROR_NAMES(weftSend(a, 1, weftInt32, -1, comm, NULL), "argument.rank", "peer");
    CHECK_ERROR_NAMES(weftRecv(a, 1, weftInt32, ranks, comm, NULL), "argument.rank", "peer");
    CHECK_ERROR_NAMES(weftSend(NULL, 1, weftInt32, 0, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR_NAMES(weftRecv(NULL, 1, weftInt32, 0, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftSend(a, 1, (weftDataType_t)99, 0, comm, NULL), "argument.datatype", "datatype");
    CHECK_ERROR(weftRecv(a, ~(size_t)0, weftInt32, 0, comm, NULL), "argument.count");
    CHECK_ERROR(weftSend(a, 1, weftInt32, 0, NULL, NULL), "argument.communicator");
    CHECK_ERROR(weftRecv(a, 1, weftInt32, 0, (weftComm_t)a, NULL), "argument.communicator");
    CHECK_ERROR(weftSend(a, 1, weftInt32, 0, comm, (weftStream_t)a), "argument.stream");
    CHECK_ERROR_NAMES(weftSendRecv(a, 1, 9, b, 1, 0, weftInt32, comm, NULL), "argument.rank", "dest");
    CHECK_ERROR_NAMES(weftSendRecv(a, 1, 0, b, 1, 9, weftInt32, comm, NULL), "argument.rank", "source");
    CHECK_ERROR(weftSendRecv(a, 2, 0, a + 1, 2, 0, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR_NAMES(weftAlltoAllv(a, NULL, places, b, counts, places, weftInt32, comm, NULL), "argument.null",
                      "sendcounts");
    CHECK_ERROR_NAMES(weftAlltoAllv(a, counts, NULL, b, counts, places, weftInt32, comm, NULL), "argument.null",
                      "sdispls");
    CHECK_ERROR_NAMES(weftAlltoAllv(a, counts, places, b, counts, NULL, weftInt32, comm, NULL), "argument.null",
                      "rdispls");
    CHECK_ERROR_NAMES(weftAlltoAllvDeviceCounts(a, counts, places, b, NULL, places, weftInt32, comm, NULL),
                      "argument.null", "recvcounts");
    CHECK_ERROR(weftAlltoAllvDeviceCounts(a, counts, places, b, counts, places, weftInt32, comm, NULL), "memory.kind");
    CHECK_ERROR_NAMES(weftAlltoAllv(NULL, counts, places, b, counts, places, weftInt32, comm, NULL), "argument.null",
                      "sendbuff");
    CHECK_ERROR_NAMES(weftAlltoAllv(a, counts, places, b, counts, same, weftInt32, comm, NULL), "argument.counts",
                      "ranks 0 and 1");
    CHECK_ERROR(weftAlltoAllv(a, counts, places, a + 5, counts, places, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftAlltoAllv(a, counts, places, a, counts, places, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR_NAMES(weftAlltoAllv(a, counts, huge, b, counts, places, weftInt32, comm, NULL), "argument.count",
                      "sdispls[2]");
    CHECK_ERROR(weftAlltoAllv(a, counts, places, b, same, places, weftInt32, comm, NULL), "argument.counts");
    CHECK_ERROR_NAMES(weftGatherv(a, 2, b, counts, places, weftInt32, 3, comm, NULL), "argument.rank", "root");
    CHECK_ERROR(weftGatherv(a, 3, b, counts, places, weftInt32, 1, comm, NULL), "argument.counts");
    CHECK_ERROR_NAMES(weftGatherv(a, 2, b, NULL, places, weftInt32, 1, comm, NULL), "argument.null", "recvcounts");
    CHECK_ERROR(weftGatherv(b + 1, 2, b, counts, places, weftInt32, 1, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftScatterv(a, counts, places, a + 3, 2, weftInt32, 1, comm, NULL), "argument.overlap");
    CHECK_ERROR_NAMES(weftScatterv(a, NULL, places, b, 2, weftInt32, 1, comm, NULL), "argument.null", "sendcounts");
    CHECK_ERROR(weftAllGatherv(a, 1, b, counts, places, weftInt32, comm, NULL), "argument.counts");
    CHECK_ERROR(weftAllGatherv(a, 2, b, counts, same, weftInt32, comm, NULL), "argument.counts");
    CHECK_ERROR_NAMES(weftAllGatherv(a, 2, b, counts, places, (weftDataType_t)-1, comm, NULL), "argument.datatype",
                      "datatype");
    CHECK_ERROR_NAMES(weftReduceScatterv(a, b, NULL, weftInt32, weftSum, comm, NULL), "argument.null", "recvcounts");
    CHECK_ERROR_NAMES(weftReduceScatterv(a, NULL, counts, weftInt32, weftSum, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftReduceScatterv(NULL, b, counts, weftInt32, weftSum, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR(weftReduceScatterv(a, a + 1, counts, weftInt32, weftSum, comm, NULL), "argument.overlap");
    CHECK_ERROR_NAMES(weftReduceScatterv(a, b, counts, weftInt32, (weftRedOp_t)77, comm, NULL), "argument.reduction",
                      "op");
#undef REFUSES
    /* No call was begun. */
    CHECK_OK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftBarrier(comms[rank], NULL));
    CHECK_OK(weftGroupEnd());
    end_all();
}

int main(void) {
    run_case("messages in a group find each other in any order", messages_in_any_order);
    run_case("messages go on beside collectives of the same group", messages_beside_collectives);
    run_case("a rank sends to itself if it receives in the same group", messages_to_oneself);
    run_case("both ends of a message that differ are named, and the communicator is dead", counts_that_differ);
    run_case("parts of any size go where tables say, in place on roots", uneven_parts);
    run_case("uneven parts of a sum, scaled, averaged and in place, come to their ranks", uneven_sums);
    run_case("every wrong argument is refused with a sentence", wrong_arguments);
    return summary();
}
