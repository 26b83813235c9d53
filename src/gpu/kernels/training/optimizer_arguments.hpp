// optimizer_arguments.hpp: the arguments of the kernel of a training step: parts of a model, and the work on each. Plain
// data with the same layout in the host's compiler and the device's.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/kernels/optimizer_formulas.hpp"
#include "weft/types.h"

namespace weft::internal::cuda {

struct PartArguments {
    float* values;
    float *first, *second;  // moments; the momentum is the first one
    void* copy;             // or null
    void* gradient;
    uint64_t count;  // elements
    weftDataType_t copy_type, gradient_type;
    SgdStep sgd;
    AdamStep adam;
    float factor;  // the rate of LAMB with the layer's ratio; or of scale
    FrozenStep frozen;
    float* fresh;  // 1-bit LAMB's third moment
};

inline constexpr int optimizer_parts_max = 24;  // of one launch
inline constexpr int optimizer_blocks_max = 1024;
inline constexpr int optimizer_sum_blocks_max = 256;  // the host adds up the sums of each
inline constexpr int optimizer_threads = 256;
inline constexpr uint64_t optimizer_chunk = 4096;  // elements; a block takes them in turn with the others

struct OptimizerArguments {
    PartWork work;
    int32_t parts;
    double power;    // of measure; infinite: the largest element
    PartSums* sums;  // [part][block]
    PartArguments part[optimizer_parts_max];
};
static_assert(sizeof(OptimizerArguments) <= 4096, "passed by value");

inline constexpr const char* optimizer_entry_point = "weft_optimizer";

}  // namespace weft::internal::cuda
