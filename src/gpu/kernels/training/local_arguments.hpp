// local_arguments.hpp: the arguments of the kernel of training with rare communication. Plain data with the same layout
// in the host's compiler and the device's.
#pragma once
#include <cstdint>

#include "weft/types.h"

namespace weft::internal::cuda {

// The state of parameters is float32, or float64 for float64.
enum class LocalWork : int32_t {
    widen,          // state = values
    subtract,       // difference = state - values
    outer,          // SGD with Nesterov momentum on the state. Then values = lerp(state, values, mix)
    find_infinite,  // *found = 1 if a value is infinite or NaN
};

struct LocalArguments {
    LocalWork work;
    weftDataType_t type;  // of the values
    uint64_t count;       // elements
    void* values;
    void *state, *momentum;
    void* difference;  // of outer: the gradient
    double learning_rate, decay, mix;
    uint32_t* found;
};

inline constexpr int local_threads = 256;
inline constexpr int local_blocks_max = 1024;

inline constexpr const char* local_entry_point = "weft_local_step";

}  // namespace weft::internal::cuda
