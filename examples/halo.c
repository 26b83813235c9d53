/* halo.c: one-sided calls. A ring of cells is split into a slab for each rank.
 * In every step each cell becomes the mean of its neighbours, so ranks need the outermost cells of the next slabs.
 * Each rank puts its outermost cells into its neighbours' slabs with a signal; no rank calls receive.
 *
 * weft run -n 4 ./halo */
#include "check.h"

enum { cells = 1000, steps = 100, slab = cells + 2 }; /* one more cell on either side, written by the neighbours */
enum { from_left = 0, from_right = 1 };               /* signals */

static double first_value(int cell) { return (double)(cell % 97 * 13 % 31); }

/* The same computation without ranks. */
static void whole_ring(double* ring, double* next, int size) {
    int step, i;
    for (i = 0; i < size; ++i) ring[i] = first_value(i);
    for (step = 0; step < steps; ++step) {
        for (i = 0; i < size; ++i) next[i] = (ring[(i + size - 1) % size] + ring[(i + 1) % size]) / 2;
        for (i = 0; i < size; ++i) ring[i] = next[i];
    }
}

int main(void) {
    weftComm_t comm;
    weftWindow_t window;
    void* memory;
    double *slabs, *ring;
    int ranks, rank, step, i;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));
    /* Two slabs alternate: a neighbour that is a step ahead must not overwrite cells in use.
     * Other processes can map weftHostAlloc's memory: a put is then a plain copy. */
    CHECK(weftHostAlloc(&memory, 2 * slab * sizeof(double)));
    slabs = memory;
    CHECK(weftCommWindowRegister(comm, slabs, 2 * slab * sizeof(double), &window, WEFT_WIN_DEFAULT));

    for (i = 0; i < cells; ++i) slabs[1 + i] = first_value(rank * cells + i);
    for (step = 0; step < steps; ++step) {
        const int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks;
        const size_t begin = (size_t)(step % 2) * slab;
        const double* old = slabs + begin;
        double* next = slabs + slab - begin;
        const weftWaitSignalDesc_t both[2] = {{1, left, from_left, 0}, {1, right, from_right, 0}};
        /* Offsets are bytes. This rank's first cell goes behind the left neighbour's last cell, and the other way
         * round. */
        CHECK(weftPutSignal(old + 1, 1, weftFloat64, left, window, (begin + slab - 1) * sizeof(double), from_right, 0,
                            0, comm, NULL));
        CHECK(weftPutSignal(old + cells, 1, weftFloat64, right, window, begin * sizeof(double), from_left, 0, 0, comm,
                            NULL));
        CHECK(weftWaitSignal(2, both, comm, NULL));
        for (i = 1; i <= cells; ++i) next[i] = (old[i - 1] + old[i + 1]) / 2;
    }

    ring = malloc(2 * sizeof(double) * (size_t)(ranks * cells));
    EXPECT(ring != NULL);
    whole_ring(ring, ring + ranks * cells, ranks * cells);
    for (i = 0; i < cells; ++i) EXPECT(slabs[(steps % 2) * slab + 1 + i] == ring[rank * cells + i]);
    printf("rank %d of %d: %d cells are right after %d steps\n", rank, ranks, (int)cells, (int)steps);

    /* Collective: when it returns, no rank writes into the slabs any more. */
    CHECK(weftCommWindowDeregister(comm, window));
    CHECK(weftCommDestroy(comm));
    CHECK(weftMemFree(memory));
    free(ring);
    return 0;
}
