/* one_thread_group.c: one thread drives all ranks.
 * A blocking call would wait for ranks of the same thread. So the calls of all ranks are in a group, whose end runs
 * them.
 *
 * ./one_thread_group */
#include "check.h"

enum { ranks = 4, count = 1000 };

int main(void) {
    weftComm_t comms[ranks];
    static int32_t values[ranks][count], parts[ranks][ranks], received[ranks][ranks];
    int rank, i;

    CHECK(weftCommInitAll(comms, ranks, NULL));
    for (rank = 0; rank < ranks; ++rank) {
        for (i = 0; i < count; ++i) values[rank][i] = rank * i;
        for (i = 0; i < ranks; ++i) parts[rank][i] = 10 * rank + i;
    }

    /* Several calls for each rank run in the order in which they are made. */
    CHECK(weftGroupStart());
    for (rank = 0; rank < ranks; ++rank) {
        CHECK(weftAllReduce(values[rank], values[rank], count, weftInt32, weftMax, comms[rank], NULL));
        CHECK(weftAlltoAll(parts[rank], received[rank], 1, weftInt32, comms[rank], NULL));
    }
    CHECK(weftGroupEnd());

    for (rank = 0; rank < ranks; ++rank) {
        for (i = 0; i < count; ++i) EXPECT(values[rank][i] == (ranks - 1) * i);
        for (i = 0; i < ranks; ++i) EXPECT(received[rank][i] == 10 * i + rank);
        CHECK(weftCommDestroy(comms[rank]));
    }
    printf("one thread, %d ranks: maximum and transposition are right\n", ranks);
    return 0;
}
