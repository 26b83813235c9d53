// local_arithmetic.hpp: the loops over elements of local training. Parameters are float16, bfloat16, float32 or float64.
// Their state is float32, or float64 for float64.
#pragma once
#include <cstddef>
#include <cstdint>

#include "src/base/result.hpp"
#include "weft/types.h"

namespace weft::internal::cuda {
struct LocalArguments;
}

namespace weft::internal::train {

class MemorySpace;

// The type of the state.
weftDataType_t state_type(weftDataType_t parameter);

// ---- In memory of the space.

// Before the others: a device may lack the kernel.
Status prepare_local_arithmetic(MemorySpace& space);
// state[i] = values[i]
Status widen(MemorySpace& space, void* state, const void* values, size_t count, weftDataType_t type);
// difference[i] = anchor[i] - values[i]
Status subtract(MemorySpace& space, void* difference, const void* anchor, const void* values, size_t count,
                weftDataType_t type);

struct OuterStep {
    double learning_rate, momentum, mix;
};
// SGD with Nesterov momentum on the anchor, as torch.optim.SGD does it. Then values[i] = lerp(anchor[i], values[i], mix).
Status step_outer(MemorySpace& space, const OuterStep& step, void* values, void* anchor, void* momentum,
                  const void* gradient, size_t count, weftDataType_t type);
// *found becomes 1 if a value is infinite or NaN, and stays as it is otherwise.
Status find_infinite(MemorySpace& space, const void* values, size_t count, weftDataType_t type, uint32_t* found);

// Of the others, on a device's stream: local_elements.hpp. Without elements it only finds the kernel.
Status run_local_kernel(int device, const cuda::LocalArguments& work, weftStream_t stream);

// ---- In host memory.

// values[i] -= rate * gradient[i], rounded once to the type.
void step_sgd(void* values, const void* gradient, size_t count, weftDataType_t type, double rate);
// state[i] += values[i]
void add_to_state(void* state, const void* values, size_t count, weftDataType_t type);
// values[i] = sum[i] / divisor, rounded to the parameter's type, in the memory of the sums.
void take_mean(void* sum, size_t divisor, size_t count, weftDataType_t type);
bool all_finite(const void* values, size_t count, weftDataType_t type);

}  // namespace weft::internal::train
