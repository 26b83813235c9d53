#include "src/train/sharding/gradient_division.hpp"

#include <cmath>

namespace weft::internal::train {

GradientDivision two_steps(double divisor) {
    double before = 1;
    while (std::fmod(divisor, before) == 0 && divisor / before > before) before *= 2;
    return {before == 1 ? GradientDivision::Reduction::sum : GradientDivision::Reduction::scaled_sum, before,
            divisor / before};
}

bool divides_in_steps(weftDataType_t type) { return type != weftFloat32 && type != weftBfloat16; }

GradientDivision gradient_division(weftDataType_t type, int ranks, double divisor) {
    if (divisor == 1) return {};
    if (divides_in_steps(type)) return two_steps(divisor);
    if (divisor == ranks) return {GradientDivision::Reduction::average, divisor, 1};
    return {GradientDivision::Reduction::scaled_sum, divisor, 1};
}

}  // namespace weft::internal::train
