/* hello_all_reduce.c: the shortest useful program: an all-reduce over all processes.
 *
 * weft run -n 4 ./hello_all_reduce */
#include "check.h"

enum { count = 1024 };

int main(void) {
    weftComm_t comm;
    static float mine[count], sum[count];
    int ranks, rank, i;

    /* The launcher's environment names the other ranks. */
    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));

    for (i = 0; i < count; ++i) mine[i] = (float)(rank + i);
    /* Host memory and no stream: when the call returns, every rank has the sum, with equal bits. */
    CHECK(weftAllReduce(mine, sum, count, weftFloat32, weftSum, comm, NULL));
    for (i = 0; i < count; ++i) EXPECT(sum[i] == (float)(ranks * (ranks - 1) / 2 + ranks * i));

    printf("rank %d of %d: the sum of all first numbers is %g\n", rank, ranks, (double)sum[0]);
    CHECK(weftCommDestroy(comm));
    return 0;
}
