// batch_norm.hpp: the statistics of a batch-norm layer over all ranks, forward and backward. Each call communicates once.
#pragma once
#include <span>

#include "src/base/result.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

// Activations: batch x channels x inner elements of float32, float16 or bfloat16.
struct BatchNormShape {
    size_t batch = 0, channels = 0, inner = 1;
    weftDataType_t datatype = weftFloat32;

    size_t count() const { return batch * inner; }  // of each channel
};

struct BatchNormRunning {
    double momentum = 0.1;
    float *mean = nullptr, *variance = nullptr;  // or null
};

// Writes each channel's mean and 1 / sqrt(variance + epsilon) over all ranks, and gives the elements of a channel.
Result<uint64_t> batch_norm_forward(const BatchNormShape& shape, const void* x, weftComm_t comm, double epsilon,
                                    float* mean, float* invstd, const BatchNormRunning& running);

// Writes each channel's sum of dy, then each one's sum of dy (x - mean): of this rank, if `own` is not null, and of all.
Status batch_norm_backward(const BatchNormShape& shape, const void* x, const void* dy, const float* mean,
                           weftComm_t comm, float* own, float* all);

}  // namespace weft::internal::train
