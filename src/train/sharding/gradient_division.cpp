#include "src/train/sharding/gradient_division.hpp"

#include <cmath>

namespace weft::internal::train {

GradientDivision two_steps(double divisor) {
    double before = 1;
    while (std::fmod(divisor, before) == 0 && divisor / before > before) before *= 2;
    return {before == 1 ? GradientDivision::Reduction::sum : GradientDivision::Reduction::scaled_sum, before,
            divisor / before};
}

GradientDivision gradient_division(weftDataType_t type, int ranks, double divisor) {
    if (divisor == 1) return {};
    if (type != weftFloat32 && type != weftBfloat16) return two_steps(divisor);
    if (divisor == ranks) return {GradientDivision::Reduction::average, divisor, 1};
    return {GradientDivision::Reduction::scaled_sum, divisor, 1};
}

}  // namespace weft::internal::train
