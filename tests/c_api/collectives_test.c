/* collectives_test.c: every collective but all-reduce, called by a C program: three ranks of one thread in a group.
 * Tested: results, unused buffers, calls in place, and an error for each wrong argument. */
#include "check.h"

enum { ranks = 3, count = 5 };
static weftComm_t comms[ranks];
static int in[ranks][ranks * count], out[ranks][ranks * count];

/* Element `i` of part `part` of rank `rank`. */
static int value(int rank, int part, int i) { return 10000 * (rank + 1) + 100 * part + i; }

static void fill(void) {
    int rank, part, i;
    for (rank = 0; rank < ranks; ++rank)
        for (part = 0; part < ranks; ++part)
            for (i = 0; i < count; ++i) {
                in[rank][part * count + i] = value(rank, part, i);
                out[rank][part * count + i] = -1;
            }
}

/* Begins the group, or ends it and checks that it went well. */
static void begin(void) {
    fill();
    CHECK_OK(weftGroupStart());
}
static void end(void) { CHECK_OK(weftGroupEnd()); }

static int is_part(const int* got, int rank, int part) {
    int i;
    for (i = 0; i < count; ++i)
        if (got[i] != value(rank, part, i)) return 0;
    return 1;
}
/* The sum over all ranks of their part `part`. */
static int is_sum(const int* got, int part) {
    int i, rank, sum;
    for (i = 0; i < count; ++i) {
        for (sum = 0, rank = 0; rank < ranks; ++rank) sum += value(rank, part, i);
        if (got[i] != sum) return 0;
    }
    return 1;
}
static int untouched(const int* got, int elements) {
    int i;
    for (i = 0; i < elements; ++i)
        if (got[i] != -1) return 0;
    return 1;
}

static void broadcast(void) {
    int rank;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftBroadcast(rank == 1 ? in[1] : NULL, out[rank], count, weftInt32, 1, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank) CHECK(is_part(out[rank], 1, 0) && untouched(out[rank] + count, 2 * count));
    begin();
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftBcast(in[rank], count, weftInt32, 2, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank) CHECK(is_part(in[rank], 2, 0) && is_part(in[rank] + count, rank, 1));
}

static void reduce(void) {
    int rank;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduce(in[rank], rank == 2 ? out[2] : NULL, count, weftInt32, weftSum, 2, comms[rank], NULL));
    end();
    CHECK(is_sum(out[2], 0) && untouched(out[0], count));
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduce(in[rank], in[rank], count, weftInt32, weftSum, 0, comms[rank], NULL));
    end();
    CHECK(is_sum(in[0], 0));
    for (rank = 1; rank < ranks; ++rank) CHECK(is_part(in[rank], rank, 0));
}

static void all_gather(void) {
    int rank, part;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllGather(in[rank], out[rank], count, weftInt32, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank)
        for (part = 0; part < ranks; ++part) CHECK(is_part(out[rank] + part * count, part, 0));
    begin(); /* in place: part `rank` of the result */
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAllGather(in[rank] + rank * count, in[rank], count, weftInt32, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank)
        for (part = 0; part < ranks; ++part) CHECK(is_part(in[rank] + part * count, part, part));
}

static void reduce_scatter(void) {
    int rank;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduceScatter(in[rank], out[rank], count, weftInt32, weftSum, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank) CHECK(is_sum(out[rank], rank) && untouched(out[rank] + count, 2 * count));
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftReduceScatter(in[rank], in[rank] + rank * count, count, weftInt32, weftSum, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank) CHECK(is_sum(in[rank] + rank * count, rank));
}

static void all_to_all(void) {
    int rank, part;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftAlltoAll(in[rank], out[rank], count, weftInt32, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank)
        for (part = 0; part < ranks; ++part) CHECK(is_part(out[rank] + part * count, part, rank));
}

static void gather_and_scatter(void) {
    int rank, part;
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftGather(in[rank], rank == 1 ? out[1] : NULL, count, weftInt32, 1, comms[rank], NULL));
    end();
    for (part = 0; part < ranks; ++part) CHECK(is_part(out[1] + part * count, part, 0));
    begin();
    for (rank = 0; rank < ranks; ++rank)
        CHECK_OK(weftScatter(rank == 2 ? in[2] : NULL, out[rank], count, weftInt32, 2, comms[rank], NULL));
    end();
    for (rank = 0; rank < ranks; ++rank) CHECK(is_part(out[rank], 2, rank) && untouched(out[rank] + count, 2 * count));
    begin(); /* in place on the roots: their own part stays where it is */
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(weftGather(rank == 0 ? in[0] : in[rank] + count, in[0], count, weftInt32, 0, comms[rank], NULL));
        CHECK_OK(weftScatter(in[2], rank == 2 ? in[2] + 2 * count : out[rank], count, weftInt32, 2, comms[rank], NULL));
    }
    end();
    CHECK(is_part(in[0], 0, 0) && is_part(in[0] + count, 1, 1) && is_part(in[0] + 2 * count, 2, 1));
    CHECK(is_part(in[2] + 2 * count, 2, 2) && is_part(out[0], 2, 0) && is_part(out[1], 2, 1));
}

static void barrier(void) {
    int rank;
    begin();
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftBarrier(comms[rank], NULL));
    end();
}

static void nothing(void) {
    int rank;
    begin();
    for (rank = 0; rank < ranks; ++rank) {
        CHECK_OK(weftBroadcast(NULL, NULL, 0, weftInt32, 1, comms[rank], NULL));
        CHECK_OK(weftAllGather(NULL, NULL, 0, weftInt32, comms[rank], NULL));
        CHECK_OK(weftReduceScatter(NULL, NULL, 0, weftInt32, weftMax, comms[rank], NULL));
        CHECK_OK(weftAlltoAll(NULL, NULL, 0, weftInt32, comms[rank], NULL));
        CHECK_OK(weftGather(NULL, NULL, 0, weftInt32, 2, comms[rank], NULL));
    }
    end();
}

static void wrong_arguments(void) {
    weftComm_t comm = comms[1];
    int* const a = in[1];
    int* const b = out[1];
    const weftStream_t stream = (weftStream_t)a;
#define REFUSES(call, part) CHECK_FAILS(call, weftInvalidArgument, part)
    CHECK_ERROR_NAMES(weftBroadcast(a, b, count, weftInt32, 3, comm, NULL), "argument.rank", "root");
    CHECK_ERROR_NAMES(weftBcast(a, count, weftInt32, -1, comm, NULL), "argument.rank", "root");
    CHECK_ERROR_NAMES(weftReduce(a, b, count, weftInt32, weftSum, 3, comm, NULL), "argument.rank", "root");
    CHECK_ERROR_NAMES(weftGather(a, b, count, weftInt32, 7, comm, NULL), "argument.rank", "root");
    CHECK_ERROR_NAMES(weftScatter(a, b, count, weftInt32, 3, comm, NULL), "argument.rank", "root");
    /* A buffer that a rank needs may not be NULL. */
    CHECK_ERROR_NAMES(weftBroadcast(NULL, b, count, weftInt32, 1, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR_NAMES(weftBroadcast(a, NULL, count, weftInt32, 0, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftReduce(a, NULL, count, weftInt32, weftSum, 1, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftGather(a, NULL, count, weftInt32, 1, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftScatter(NULL, b, count, weftInt32, 1, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR_NAMES(weftAllGather(NULL, b, count, weftInt32, comm, NULL), "argument.null", "sendbuff");
    CHECK_ERROR_NAMES(weftReduceScatter(a, NULL, count, weftInt32, weftSum, comm, NULL), "argument.null", "recvbuff");
    CHECK_ERROR_NAMES(weftAlltoAll(NULL, b, count, weftInt32, comm, NULL), "argument.null", "sendbuff");
    /* Overlaps: in place is one place only. */
    CHECK_ERROR(weftAllGather(a, a, count, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftAllGather(a + 2 * count, a, count, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftReduceScatter(a, a, count, weftInt32, weftSum, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftAlltoAll(a, a, count, weftInt32, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftGather(a, a, count, weftInt32, 1, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftScatter(a, a, count, weftInt32, 1, comm, NULL), "argument.overlap");
    CHECK_ERROR(weftBroadcast(a + 1, a, count, weftInt32, 1, comm, NULL), "argument.overlap");
    /* Types, reductions, counts, streams. */
    CHECK_ERROR_NAMES(weftAllGather(a, b, count, weftNumTypes, comm, NULL), "argument.datatype", "datatype");
    CHECK_ERROR_NAMES(weftReduce(a, b, count, weftInt32, weftNumOps, 0, comm, NULL), "argument.reduction", "op");
    CHECK_ERROR_NAMES(weftReduceScatter(a, b, count, weftInt32, (weftRedOp_t)-1, comm, NULL), "argument.reduction",
                      "op");
    CHECK_ERROR(weftAlltoAll(a, b, SIZE_MAX / 4, weftInt32, comm, NULL), "argument.count");
    CHECK_ERROR(weftAllGather(a, b, count, weftInt32, comm, stream), "argument.stream");
    CHECK_ERROR(weftBarrier(comm, stream), "argument.stream");
    CHECK_ERROR(weftBarrier(NULL, NULL), "argument.communicator");
    CHECK_ERROR(weftScatter(a, b, count, weftInt32, 0, (weftComm_t)a, NULL), "argument.communicator");
#undef REFUSES
    broadcast(); /* none of that was an error of the communicator */
}

static void alone(void) {
    weftComm_t comm = NULL;
    CHECK_OK(weftCommInitAll(&comm, 1, NULL));
    fill();
    CHECK_OK(weftBroadcast(in[0], out[0], count, weftInt32, 0, comm, NULL));
    CHECK(is_part(out[0], 0, 0));
    CHECK_OK(weftReduce(in[1], out[0], count, weftInt32, weftAvg, 0, comm, NULL));
    CHECK(is_part(out[0], 1, 0));
    CHECK_OK(weftAllGather(in[2], out[0], count, weftInt32, comm, NULL));
    CHECK(is_part(out[0], 2, 0));
    CHECK_OK(weftReduceScatter(in[0], out[0], count, weftInt32, weftSum, comm, NULL));
    CHECK(is_part(out[0], 0, 0));
    CHECK_OK(weftAlltoAll(in[1], out[0], count, weftInt32, comm, NULL));
    CHECK(is_part(out[0], 1, 0));
    CHECK_OK(weftGather(in[2], out[0], count, weftInt32, 0, comm, NULL));
    CHECK(is_part(out[0], 2, 0));
    CHECK_OK(weftScatter(in[0], in[0], count, weftInt32, 0, comm, NULL));
    CHECK_OK(weftBarrier(comm, NULL));
    CHECK_OK(weftCommDestroy(comm));
}

int main(void) {
    int rank;
    CHECK_OK(weftCommInitAll(comms, ranks, NULL));
    run_case("a broadcast hands out the root's buffer", broadcast);
    run_case("a reduce gives its root the sum, and others nothing", reduce);
    run_case("an all-gather gives everybody everybody's", all_gather);
    run_case("a reduce-scatter gives each its part of the sum", reduce_scatter);
    run_case("an all-to-all turns ranks and parts about", all_to_all);
    run_case("the root of a gather has all parts, that of a scatter hands them out", gather_and_scatter);
    run_case("a barrier lets all pass", barrier);
    run_case("nothing can be moved, too", nothing);
    run_case("wrong arguments are refused with a sentence and do no harm", wrong_arguments);
    for (rank = 0; rank < ranks; ++rank) CHECK_OK(weftCommDestroy(comms[rank]));
    run_case("a rank alone receives its own data", alone);
    return summary();
}
