// batch_norm_arguments.hpp: the arguments of the kernel of batch-norm statistics. Plain data with the same layout in the
// host's compiler and the device's.
#pragma once
#include <cstdint>

#include "weft/types.h"

namespace weft::internal::cuda {

enum class BatchNormWork : int32_t {
    measure,      // moments of each slice of a channel
    join_slices,  // of a channel: to the rank's message
    finish,       // the messages of all ranks: to the results
    slopes,       // backward: sums of each slice of a channel
    add_slices,   // of a channel: to the rank's message, and to own_sums
    write_sums,   // the message, which all ranks have added up: to sums
};

// The elements of a channel are `slices` slices of equal length but for the last one.
struct BatchNormForm {
    weftDataType_t type;  // of x and dy: float32, float16 or bfloat16
    uint64_t batch, channels, inner;
    uint64_t slices, ranks;
};

// Of forward, or of backward.
struct BatchNormResults {
    float *mean, *invstd;                    // mean is an input of backward
    float *running_mean, *running_variance;  // or null
    uint64_t* count;                         // or null
    float* own_sums;                         // or null
    float* sums;
};

struct BatchNormArguments {
    BatchNormWork work;
    BatchNormForm form;
    const void *x, *dy;
    double* of_slices;  // [channel][slice][2]
    // Forward: each channel's mean, each one's sum of squared distances to it, and the elements of a channel.
    // Backward: each channel's sum of dy, then each one's of dy (x - mean).
    double* message;
    const double* messages;  // [rank], of forward
    double epsilon, momentum;
    BatchNormResults results;
};

inline constexpr int batch_norm_threads = 256;
inline constexpr uint64_t batch_norm_blocks_max = 65535;
inline constexpr uint64_t batch_norm_slice = 8192;   // elements at least, if there are several slices
inline constexpr uint64_t batch_norm_blocks = 1024;  // are enough: then channels are not cut further
constexpr uint64_t batch_norm_slices(uint64_t count, uint64_t channels) {
    const uint64_t by_length = (count + batch_norm_slice - 1) / batch_norm_slice;
    const uint64_t by_blocks = (batch_norm_blocks + channels - 1) / channels;
    const uint64_t slices = by_length < by_blocks ? by_length : by_blocks;
    return slices > 0 ? slices : 1;
}

inline constexpr const char* batch_norm_entry_point = "weft_batch_norm";

}  // namespace weft::internal::cuda
