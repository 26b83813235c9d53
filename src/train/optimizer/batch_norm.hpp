// batch_norm.hpp: the statistics of a batch-norm layer over all ranks, forward and backward. Each call communicates once.
#pragma once
#include "src/base/result.hpp"
#include "weft/weft.h"

namespace weft::internal::train {

// Activations: batch x channels x inner elements of float32, float16 or bfloat16.
struct BatchNormShape {
    size_t batch = 0, channels = 0, inner = 1;
    weftDataType_t datatype = weftFloat32;

    size_t count() const { return batch * inner; }  // of each channel
};

// Of each channel the mean and 1 / sqrt(variance + epsilon) over all ranks, and the elements of a channel.
struct BatchNormForward {
    BatchNormShape shape;
    const void* x = nullptr;
    double epsilon = 1e-5, momentum = 0.1;
    float *mean = nullptr, *invstd = nullptr;
    float *running_mean = nullptr, *running_variance = nullptr;  // or null
    uint64_t* count = nullptr;                                   // or null
    bool count_on_device = false;                                // with the rest of the memory
};

// Each channel's sum of dy, then each one's sum of dy (x - mean): of this rank, and of all.
struct BatchNormBackward {
    BatchNormShape shape;
    const void *x = nullptr, *dy = nullptr;
    const float* mean = nullptr;
    float *own = nullptr, *all = nullptr;  // own may be null
};

// In host memory.
Status batch_norm(const BatchNormForward& forward, weftComm_t comm);
Status batch_norm(const BatchNormBackward& backward, weftComm_t comm);

// On a device, by work of the caller's stream. A count in host memory is waited for; then too few elements are an error.
Status batch_norm(const BatchNormForward& forward, int device, weftComm_t comm, weftStream_t stream);
Status batch_norm(const BatchNormBackward& backward, int device, weftComm_t comm, weftStream_t stream);

// For total elements of a channel over all ranks.
Status check_batch_norm_count(uint64_t total);

}  // namespace weft::internal::train
