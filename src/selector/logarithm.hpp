// logarithm.hpp: natural logarithm and exponential from sums, products and quotients, which all machines round alike. C
// libraries differ in the last bits, and ranks on different hosts must choose alike. Reentrant.
#pragma once
#include <cmath>

namespace weft::internal {

inline constexpr double logarithm_of_two = 0.6931471805599453;

// The number must be positive and finite.
inline double logarithm(double number) {
    int exponent = 0;
    double mantissa = std::frexp(number, &exponent);  // exact, as ldexp is: from a half up to 1
    if (mantissa < 0.7071067811865476) {
        mantissa *= 2;
        --exponent;
    }
    // 2 artanh(t), where t is 0.172 at most: the remainder of the series is below a double's last bit.
    const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
    double sum = 0;
    for (int power = 23; power >= 1; power -= 2) sum = sum * square + 1.0 / power;
    return exponent * logarithm_of_two + 2 * t * sum;
}

// The result must be in the range of a double.
inline double exponential(double number) {
    const double halvings = std::floor(number / logarithm_of_two + 0.5);
    const double rest = number - halvings * logarithm_of_two;  // 0.35 at most
    double sum = 1;
    for (int term = 16; term >= 1; --term) sum = 1 + sum * rest / term;
    return std::ldexp(sum, int(halvings));
}

}  // namespace weft::internal
