/* streams.c: overlap of computation and communication.
 * A stream sums gradients layer by layer, the last layer first, while this thread computes the next layer.
 * Then all ranks wait. Each step makes the same calls, so they are prepared once.
 *
 * weft run -n 4 ./streams */
#include "check.h"

enum { layers = 4, weights = 10000, steps = 3 };

static double gradients[layers][weights], weight[layers][weights];

/* Stands for a layer's backward pass. */
static void compute(int layer, int rank, int step) {
    int i;
    for (i = 0; i < weights; ++i) gradients[layer][i] = (rank + 1) * (layer + 1) + step;
}

int main(void) {
    weftComm_t comm;
    weftStream_t stream;
    weftPrepared_t sum[layers];
    uint64_t ready[layers];
    int ranks, rank, layer, step, i;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));
    CHECK(weftStreamCreate(&stream));
    for (layer = 0; layer < layers; ++layer) {
        CHECK(weftGroupStart());
        CHECK(weftAllReduce(gradients[layer], gradients[layer], weights, weftFloat64, weftAvg, comm, stream));
        CHECK(weftGroupPrepare(&sum[layer]));
    }

    for (step = 0; step < steps; ++step) {
        for (layer = layers - 1; layer >= 0; --layer) {
            compute(layer, rank, step);
            CHECK(weftPreparedStart(sum[layer])); /* returns at once */
            CHECK(weftStreamMark(stream, &ready[layer]));
        }
        /* The optimizer uses each finished sum while the stream still works on the others. */
        for (layer = layers - 1; layer >= 0; --layer) {
            CHECK(weftStreamWait(stream, ready[layer], -1));
            for (i = 0; i < weights; ++i) weight[layer][i] += gradients[layer][i];
        }
    }
    for (layer = 0; layer < layers; ++layer)
        EXPECT(weight[layer][weights - 1] == steps * ((ranks + 1) / 2.0 * (layer + 1)) + steps * (steps - 1) / 2);
    printf("rank %d of %d: %d steps, weight %g\n", rank, ranks, steps, weight[0][0]);

    for (layer = 0; layer < layers; ++layer) CHECK(weftPreparedDestroy(sum[layer]));
    CHECK(weftStreamDestroy(stream));
    CHECK(weftCommDestroy(comm));
    return 0;
}
