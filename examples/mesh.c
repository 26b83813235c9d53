/* mesh.c: communicators split from a communicator. The ranks form a mesh of two columns.
 * Each row sums (as tensor-parallel layers do), then each column (as data-parallel ranks do).
 * Neighbours in a row exchange a number by send and receive.
 *
 * weft run -n 4 ./mesh */
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
    /* If all rows are full, the mesh's sum is the sum over all ranks. */
    if (ranks % columns == 0) EXPECT(in_mesh == ranks * (ranks + 1) / 2.0);

    /* In a group, the order of messages does not matter. A rank that is alone in its row sends to itself. */
    CHECK(weftCommUserRank(row, &place));
    CHECK(weftCommCount(row, &neighbour));
    neighbour = neighbour - 1 - place;
    CHECK(weftGroupStart());
    CHECK(weftSend(&mine, 1, weftFloat64, neighbour, row, NULL));
    CHECK(weftRecv(&theirs, 1, weftFloat64, neighbour, row, NULL));
    CHECK(weftGroupEnd());
    EXPECT(theirs == rank - place + neighbour + 1);

    printf("rank %d of %d: its row has %g, the mesh %g, its neighbour %g\n", rank, ranks, in_row, in_mesh, theirs);
    /* The order does not matter: the communicators are independent. */
    CHECK(weftCommDestroy(all));
    CHECK(weftCommDestroy(column));
    CHECK(weftCommDestroy(row));
    return 0;
}
