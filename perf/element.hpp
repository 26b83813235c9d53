// element.hpp: the data types and reductions of a benchmark, under nccl-tests' names, and the encoding of exact values.
// This is a client of Weft: nothing here comes from inside the library, so that it can check the library.
#pragma once
#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perf {

enum class Kind : uint8_t { signed_integer, unsigned_integer, floating };

struct Element {
    const char* name;     // as in nccl-tests
    const char* aliases;  // other accepted names, separated by blanks
    weftDataType_t type;
    size_t bytes;
    Kind kind;
    int mantissa_bits = 0;  // floating-point types: without the hidden bit
    int exponent_bits = 0;
    double largest = 0;  // floating-point types: the largest finite value
    // Integers up to this size, and sums up to it, are exact.
    int64_t exact_limit() const;
};

struct Reduction {
    const char* name;  // as in nccl-tests, which has no bitwise reductions
    weftRedOp_t op;    // weftNumOps stands for a pre-multiplied sum, created when needed
};

// The reduction of collectives that only move data.
inline constexpr Reduction no_reduction = {"none", weftSum};

// Types are in the order of weftDataType_t. Reductions are in the order of nccl-tests' -o all, then the bitwise ones.
const std::vector<Element>& elements();
const std::vector<Reduction>& reductions();
// Whether the type supports the reduction: bitwise reductions exist for integers only.
bool serves(const Reduction& reduction, const Element& element);
// nullptr if nothing has this name.
const Element* find_element(const std::string& name);
const Reduction* find_reduction(const std::string& name);

// The bits of `value` in the type, in the low bytes of the result. Integers wrap.
// A floating-point value must be exact in the type (zero or a normal number); an assertion checks it.
uint64_t encode_integer(const Element& element, uint64_t value);
uint64_t encode_floating(const Element& element, double value);

}  // namespace perf
