/* data_parallel.c: data-parallel training. Each rank has inputs of its own and computes gradients of a linear model.
 * weft/train.h averages them over all ranks, so all ranks make the same steps. The last rank has fewer inputs: it joins.
 *
 * weft run -n 4 ./data_parallel */
#include "check.h"

#include <weft/train.h>

enum { features = 3, inputs = 400, weight = 0, bias = 1 };

/* The function that the model learns. */
static const float truth[features + 1] = {2, -1, 0.5f, 3};

static float random_number(unsigned* state) { /* -1 to 1 */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1;
}

int main(void) {
    weftComm_t comm;
    weftTrainDdp_t ddp;
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    weftTrainTensor_t parameters[2] = {WEFT_TRAIN_TENSOR_INITIALIZER, WEFT_TRAIN_TENSOR_INITIALIZER};
    float weights[features], offset[1]; /* the model */
    int rank, ranks, step, i;
    unsigned seed;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommUserRank(comm, &rank));
    CHECK(weftCommCount(comm, &ranks));
    for (i = 0; i < features; ++i) weights[i] = (float)rank; /* rank 0's values count */
    offset[0] = (float)rank;
    parameters[weight].name = "weight";
    parameters[weight].data = weights;
    parameters[weight].count = features;
    parameters[bias].name = "bias";
    parameters[bias].data = offset;
    parameters[bias].count = 1;
    config.join = 1; /* ranks may have different numbers of inputs */
    config.divisor = weftTrainDivideByActive;
    CHECK(weftTrainDdpCreate(&ddp, comm, parameters, 2, NULL, 0, &config));

    seed = (unsigned)rank + 1;
    for (step = 0; step < inputs - (rank == ranks - 1 ? 5 : 0); ++step) {
        float input[features], error = offset[0] - truth[features];
        void *weight_gradient, *bias_gradient;
        for (i = 0; i < features; ++i) {
            input[i] = random_number(&seed);
            error += (weights[i] - truth[i]) * input[i];
        }
        CHECK(weftTrainDdpBegin(ddp, weftTrainSynchronize, NULL));
        CHECK(weftTrainDdpGetGradient(ddp, weight, &weight_gradient));
        CHECK(weftTrainDdpGetGradient(ddp, bias, &bias_gradient));
        /* The last layer's gradient comes first. Its reduction begins while others are computed. */
        *(float*)bias_gradient = error;
        CHECK(weftTrainDdpGradientReady(ddp, bias, NULL));
        for (i = 0; i < features; ++i) ((float*)weight_gradient)[i] = error * input[i];
        CHECK(weftTrainDdpGradientReady(ddp, weight, NULL));
        CHECK(weftTrainDdpFinish(ddp, NULL)); /* now they are averages */
        for (i = 0; i < features; ++i) weights[i] -= 0.5f * ((float*)weight_gradient)[i];
        offset[0] -= 0.5f * *(float*)bias_gradient;
    }
    CHECK(weftTrainDdpJoin(ddp, NULL));

    for (i = 0; i < features; ++i) EXPECT(weights[i] - truth[i] < 0.01f && truth[i] - weights[i] < 0.01f);
    if (rank == 0)
        printf("%d ranks learned %.3f %.3f %.3f and %.3f\n", ranks, weights[0], weights[1], weights[2], offset[0]);
    CHECK(weftTrainDdpDestroy(ddp));
    CHECK(weftCommDestroy(comm));
    return 0;
}
