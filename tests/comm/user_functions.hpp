// user_functions.hpp: user-defined reductions of the tests, one that commutes and one that does not.
#pragma once
#include <cstdint>

namespace weft::internal::test {

// The map x -> a x + b modulo 2^32, as a << 32 | b: composing such is associative and not commutative.
inline uint64_t compose(uint64_t left, uint64_t right) {
    const uint32_t a = uint32_t(left >> 32), b = uint32_t(left), c = uint32_t(right >> 32), d = uint32_t(right);
    return uint64_t(a * c) << 32 | uint32_t(c * b + d);
}
// Associative and commutative, and none of the built-in ones: 1 + a o b = (1 + a)(1 + b).
inline uint64_t circle(uint64_t left, uint64_t right) { return left + right + left * right; }

}  // namespace weft::internal::test
