/* mesh.c: communicators from a communicator. The ranks are a mesh of two columns: each row sums by itself, as tensor
 * parallel layers do, then each column, as data parallel ones do; neighbours in a row tell each other a number directly.
 *
 *     weft run -n 4 ./mesh */
#include "check.h"

enum { columns = 2 };

int main(void) {
    weftComm_t all, row, column;
    int ranks, rank, place, neighbour;
    double mine, in_row, in_mesh, theirs = -1;

    CHECK(weftCommInitFromEnvironment(&all, NULL));
    CHECK(weftCommCount(all, &ranks));
    CHECK(weftCommUserRank(all, &rank));

    /* One color for each row, then one for each column; the key keeps the order of ranks. */
    CHECK(weftCommSplit(all, rank / columns, rank, &row, NULL));
    CHECK(weftCommSplit(all, rank % columns, rank, &column, NULL));

    mine = rank + 1;
    CHECK(weftAllReduce(&mine, &in_row, 1, weftFloat64, weftSum, row, NULL));
    CHECK(weftAllReduce(&in_row, &in_mesh, 1, weftFloat64, weftSum, column, NULL));
    /* Full rows: the mesh's sum is that of all ranks. */
    if (ranks % columns == 0) EXPECT(in_mesh == ranks * (ranks + 1) / 2.0);

    /* In a group messages go in any order; a rank that is alone in its row sends to itself. */
    CHECK(weftCommUserRank(row, &place));
    CHECK(weftCommCount(row, &neighbour));
    neighbour = neighbour - 1 - place;
    CHECK(weftGroupStart());
    CHECK(weftSend(&mine, 1, weftFloat64, neighbour, row, NULL));
    CHECK(weftRecv(&theirs, 1, weftFloat64, neighbour, row, NULL));
    CHECK(weftGroupEnd());
    EXPECT(theirs == rank - place + neighbour + 1);

    printf("rank %d of %d: its row has %g, the mesh %g, its neighbour %g\n", rank, ranks, in_row, in_mesh, theirs);
    /* In any order: each lives by itself. */
    CHECK(weftCommDestroy(all));
    CHECK(weftCommDestroy(column));
    CHECK(weftCommDestroy(row));
    return 0;
}
