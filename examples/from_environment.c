/* from_environment.c: one program for every launcher: rank 0 decides, all ranks compute, rank 0 collects.
 *
 * weft run -n 4 ./from_environment
 * mpirun -n 4 ./from_environment                                     Open MPI, MPICH, Intel MPI
 * srun -n 4 ./from_environment
 * torchrun --nproc-per-node 4 --no-python ./from_environment
 * ./from_environment                                                 a job of one rank */
#include "check.h"

/* The number of grid points (steps x steps, columns first..last-1) inside a quarter of a circle. */
static int64_t points_inside(int64_t steps, int64_t first, int64_t last) {
    int64_t inside = 0, x, y;
    for (x = first; x < last; ++x)
        for (y = 0; y < steps; ++y) inside += x * x + y * y < steps * steps;
    return inside;
}

int main(void) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    weftComm_t comm;
    int ranks, rank, i;
    int64_t steps = 0, inside, total = 0, *of_each = NULL;

    config.commName = "circle"; /* in logs and errors */
    config.initTimeoutMs = 60 * 1000;
    CHECK(weftCommInitFromEnvironment(&comm, &config));
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));

    /* Rank 0 broadcasts data that only it has, such as a command line or a file. */
    if (rank == 0) steps = 2000;
    CHECK(weftBcast(&steps, 1, weftInt64, 0, comm, NULL));
    EXPECT(steps == 2000);

    inside = points_inside(steps, steps * rank / ranks, steps * (rank + 1) / ranks);
    if (rank == 0) of_each = malloc(sizeof *of_each * (size_t)ranks);
    /* A rank that receives nothing needs no receive buffer. */
    CHECK(weftGather(&inside, of_each, 1, weftInt64, 0, comm, NULL));
    if (rank == 0) {
        for (i = 0; i < ranks; ++i) total += of_each[i];
        EXPECT(total == points_inside(steps, 0, steps));
        printf("%d ranks: pi is about %.3f\n", ranks, 4.0 * (double)total / (double)(steps * steps));
        free(of_each);
    }
    CHECK(weftCommDestroy(comm));
    return 0;
}
