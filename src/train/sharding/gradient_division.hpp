// gradient_division.hpp: how a reduction divides gradients: PyTorch's rule (FSDP2). Values.
#pragma once
#include "weft/types.h"

namespace weft::internal::train {

// Each contribution is divided by `before`, and the sum by `after`.
struct GradientDivision {
    enum class Reduction { sum, average, scaled_sum };

    // scaled_sum multiplies each contribution by 1 / before.
    Reduction reduction = Reduction::sum;
    double before = 1, after = 1;
    bool operator==(const GradientDivision&) const = default;
};

// The sum of `ranks` contributions, divided by `divisor`. Types other than float32 and bfloat16 are divided in two
// steps: in float16 a sum of small numbers loses bits, and one of large numbers overflows.
GradientDivision gradient_division(weftDataType_t type, int ranks, double divisor);
// A power of two near the square root of the divisor, and the rest.
GradientDivision two_steps(double divisor);

}  // namespace weft::internal::train
