/* premultiplied_sum.c: a mean over ranks that have different numbers of samples.
 * Each rank's mean is multiplied by its share of the samples while it is summed, without a separate pass.
 *
 * weft run -n 4 ./premultiplied_sum */
#include "check.h"

enum { features = 5 };

/* Feature f of sample i of the job. */
static double sample(int i, int f) { return (double)((7 * i + 3 * f) % 11); }

static void mean_of(int first, int samples, double* mean) {
    int i, f;
    for (f = 0; f < features; ++f) {
        mean[f] = 0;
        for (i = first; i < first + samples; ++i) mean[f] += sample(i, f) / samples;
    }
}

int main(void) {
    weftComm_t comm;
    weftRedOp_t weighted;
    double mine[features], mean[features], expected[features], share;
    int32_t samples, total;
    int rank, f;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommUserRank(comm, &rank));

    /* Rank r has r + 1 samples, numbered after those of the lower ranks. */
    samples = rank + 1;
    mean_of(rank * (rank + 1) / 2, samples, mine);
    CHECK(weftAllReduce(&samples, &total, 1, weftInt32, weftSum, comm, NULL));

    /* Each rank has its own scalar, of the buffers' type. The call reads it at once, from host memory. */
    share = (double)samples / total;
    CHECK(weftRedOpCreatePreMulSum(&weighted, &share, weftFloat64, weftScalarHostImmediate, comm));
    CHECK(weftAllReduce(mine, mean, features, weftFloat64, weighted, comm, NULL));
    CHECK(weftRedOpDestroy(weighted, comm));

    mean_of(0, total, expected);
    for (f = 0; f < features; ++f) EXPECT(mean[f] - expected[f] < 1e-12 && expected[f] - mean[f] < 1e-12);
    if (rank == 0) printf("the mean of %d samples is right\n", (int)total);
    CHECK(weftCommDestroy(comm));
    return 0;
}
