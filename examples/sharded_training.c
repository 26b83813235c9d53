/* sharded_training.c: training of a linear model with sharded parameters, as FSDP and ZeRO do it.
 * Each rank keeps one part of the parameters. A step gathers all parts and computes the gradient of the rank's
 * samples.
 * Then it scatters the mean gradient. Every step makes the same two calls, so they are prepared once.
 *
 * weft run -n 4 ./sharded_training */
#include <math.h>

#include "check.h"

enum { shard = 8, samples = 64, steps = 400 };

/* The parameters to learn. */
static float truth(int parameter) { return 0.5f + (float)(parameter % 5); }

/* Feature `parameter` of a rank's sample: +1 or -1, from a mixed number. */
static float feature(int rank, int number, int parameter) {
    uint32_t mixed = ((uint32_t)(rank * samples + number) * 2654435761u) ^ ((uint32_t)parameter * 2246822519u);
    mixed = (mixed ^ mixed >> 15) * 2654435761u;
    return mixed >> 31 ? 1.0f : -1.0f;
}

/* Computes the gradient of the mean squared error of the rank's samples; returns that error. */
static float gradient_of(const float* weights, float* gradient, int parameters, int rank) {
    float loss = 0;
    int number, i;
    for (i = 0; i < parameters; ++i) gradient[i] = 0;
    for (number = 0; number < samples; ++number) {
        float error = 0;
        for (i = 0; i < parameters; ++i) error += (weights[i] - truth(i)) * feature(rank, number, i);
        for (i = 0; i < parameters; ++i) gradient[i] += 2 * error * feature(rank, number, i) / samples;
        loss += error * error / samples;
    }
    return loss;
}

int main(void) {
    weftComm_t comm;
    weftPrepared_t gather, scatter;
    int ranks, rank, parameters, step, i;
    float *weights, *gradient, *own, loss = 0;
    void* memory;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommCount(comm, &ranks));
    CHECK(weftCommUserRank(comm, &rank));
    parameters = ranks * shard;

    /* Zeroed memory that the other processes of the host can read in place. */
    CHECK(weftHostAlloc(&memory, 2 * sizeof(float) * (size_t)parameters));
    weights = memory;
    gradient = weights + parameters;
    own = weights + rank * shard;

    /* In place: this rank's part is at its place in the result. Nothing runs yet. */
    CHECK(weftGroupStart());
    CHECK(weftAllGather(own, weights, shard, weftFloat32, comm, NULL));
    CHECK(weftGroupPrepare(&gather));
    CHECK(weftGroupStart());
    CHECK(weftReduceScatter(gradient, gradient + rank * shard, shard, weftFloat32, weftAvg, comm, NULL));
    CHECK(weftGroupPrepare(&scatter));

    for (step = 0; step < steps; ++step) {
        CHECK(weftPreparedStart(gather));
        loss = gradient_of(weights, gradient, parameters, rank);
        CHECK(weftPreparedStart(scatter));
        for (i = 0; i < shard; ++i) own[i] -= 0.1f * gradient[rank * shard + i];
    }
    CHECK(weftAllReduce(&loss, &loss, 1, weftFloat32, weftAvg, comm, NULL));

    for (i = 0; i < shard; ++i) EXPECT(fabsf(own[i] - truth(rank * shard + i)) < 0.01f);
    if (rank == 0) printf("%d parameters on %d ranks, loss %g\n", parameters, ranks, (double)loss);
    CHECK(weftPreparedDestroy(gather));
    CHECK(weftPreparedDestroy(scatter));
    CHECK(weftMemFree(memory));
    CHECK(weftCommDestroy(comm));
    return 0;
}
