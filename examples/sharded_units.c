/* sharded_units.c: a model of two layers that no rank holds as a whole. Each rank keeps a part of every layer and its
 * gradient, gathers a layer while it is computed, and steps with its own part.
 *
 * weft run -n 4 ./sharded_units */
#include "check.h"

#include <weft/train.h>

enum { features = 5, inputs = 600, first = 0, second = 1 };

/* The first layer learns these factors of the inputs, and the second one the offset 3. */
static const float truth[features] = {2, -1, 0.5f, 3, 1};

static float random_number(unsigned* state) { /* -1 to 1 */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / 8388608.0f - 1;
}

static weftTrainTensor_t tensor(const char* name, float* data, size_t count) {
    weftTrainTensor_t made = WEFT_TRAIN_TENSOR_INITIALIZER;
    made.name = name;
    made.data = data;
    made.count = count;
    return made;
}

static weftTrainUnit_t unit(const char* name, const weftTrainTensor_t* parameter) {
    weftTrainUnit_t made = WEFT_TRAIN_UNIT_INITIALIZER;
    made.name = name;
    made.parameters = parameter;
    made.parameterCount = 1;
    return made;
}

int main(void) {
    weftComm_t comm;
    weftTrainShard_t shard;
    weftTrainTensor_t parameters[2];
    weftTrainUnit_t units[2];
    float weights[features] = {0}, offset[1] = {0}; /* rank 0's values count */
    int rank, ranks, step, i;
    unsigned seed;

    CHECK(weftCommInitFromEnvironment(&comm, NULL));
    CHECK(weftCommUserRank(comm, &rank));
    CHECK(weftCommCount(comm, &ranks));
    parameters[first] = tensor("weight", weights, features);
    parameters[second] = tensor("offset", offset, 1);
    units[first] = unit("first layer", &parameters[first]);
    units[second] = unit("second layer", &parameters[second]);
    units[second].reshardRanks = 1; /* its backward pass follows at once, so each rank keeps it until then */
    CHECK(weftTrainShardCreate(&shard, comm, units, 2, NULL));

    seed = (unsigned)rank + 1;
    for (step = 0; step < inputs; ++step) {
        float input[features], sum = 0, error;
        void *memory, *gradient;
        weftTrainPiece_t piece = WEFT_TRAIN_PIECE_INITIALIZER;
        int parameter;
        /* Forward. Each gather also fetches the layer that comes next. */
        CHECK(weftTrainShardGather(shard, first, NULL));
        CHECK(weftTrainShardGetParameter(shard, first, &memory));
        error = -3;
        for (i = 0; i < features; ++i) {
            input[i] = random_number(&seed);
            sum += ((float*)memory)[i] * input[i];
            error -= truth[i] * input[i];
        }
        CHECK(weftTrainShardRelease(shard, first, weftTrainForward, NULL));
        CHECK(weftTrainShardGather(shard, second, NULL));
        CHECK(weftTrainShardGetParameter(shard, second, &memory));
        error += sum + *(float*)memory;
        CHECK(weftTrainShardRelease(shard, second, weftTrainForward, NULL));
        /* Backward. A reduction begins while the next gradient is computed. */
        CHECK(weftTrainShardGather(shard, second, NULL));
        CHECK(weftTrainShardGetGradient(shard, second, &gradient));
        *(float*)gradient = error;
        CHECK(weftTrainShardRelease(shard, second, weftTrainBackward, NULL));
        CHECK(weftTrainShardReduceScatter(shard, second, weftTrainSynchronize, NULL));
        CHECK(weftTrainShardGather(shard, first, NULL));
        CHECK(weftTrainShardGetGradient(shard, first, &gradient));
        for (i = 0; i < features; ++i) ((float*)gradient)[i] = error * input[i];
        CHECK(weftTrainShardRelease(shard, first, weftTrainBackward, NULL));
        CHECK(weftTrainShardReduceScatter(shard, first, weftTrainSynchronize, NULL));
        CHECK(weftTrainShardFinish(shard, NULL));
        /* The optimizer: this rank's elements only. */
        for (parameter = 0; parameter < 2; ++parameter) {
            CHECK(weftTrainShardGetPiece(shard, parameter, &piece));
            for (i = 0; i < (int)piece.count; ++i) ((float*)piece.values)[i] -= 0.25f * ((float*)piece.gradient)[i];
        }
        CHECK(weftTrainShardZeroGradients(shard));
    }

    for (i = 0; i < 2; ++i) {
        void* memory;
        int k;
        CHECK(weftTrainShardGather(shard, i, NULL));
        CHECK(weftTrainShardGetParameter(shard, i, &memory));
        for (k = 0; k < (i == first ? features : 1); ++k) {
            const float difference = ((float*)memory)[k] - (i == first ? truth[k] : 3);
            EXPECT(difference < 0.01f && difference > -0.01f);
        }
        CHECK(weftTrainShardRelease(shard, i, weftTrainForward, NULL));
    }
    CHECK(weftTrainShardFinish(shard, NULL));
    if (rank == 0) printf("%d ranks learned two layers in parts\n", ranks);
    CHECK(weftTrainShardDestroy(shard));
    CHECK(weftCommDestroy(comm));
    return 0;
}
