// element.hpp: the data types and reductions that a benchmark can run, under nccl-tests' names, and how an exact value
// is written in each type. A client of Weft: nothing here comes from inside the library, so that it can check the
// library.
#pragma once
#include <weft/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace perf {

enum class Kind : uint8_t { signed_integer, unsigned_integer, floating };

struct Element {
    const char* name;     // nccl-tests'
    const char* aliases;  // other words for it, separated by blanks
    weftDataType_t type;
    size_t bytes;
    Kind kind;
    int mantissa_bits = 0;  // floating: without the hidden one
    int exponent_bits = 0;
    double largest = 0;  // floating: the largest finite value
    // Integers of at most this size, and sums of them, are exact.
    int64_t exact_limit() const;
};

struct Reduction {
    const char* name;  // nccl-tests', which knows none of bits
    weftRedOp_t op;    // weftNumOps stands for a pre-multiplied sum, made when it is needed
};

// Of collectives that only move data.
inline constexpr Reduction no_reduction = {"none", weftSum};

// In the order of weftDataType_t and, for reductions, of nccl-tests' -o all, those of bits behind them.
const std::vector<Element>& elements();
const std::vector<Reduction>& reductions();
// Whether the reduction has a meaning for the type: bits are combined of integers only.
bool serves(const Reduction& reduction, const Element& element);
// nullptr if nothing has that name.
const Element* find_element(const std::string& name);
const Reduction* find_reduction(const std::string& name);

// The bits of `value` in the type, in the low bytes of the result. Integers wrap; a floating value must be exact there
// (zero or a normal number), which is asserted.
uint64_t encode_integer(const Element& element, uint64_t value);
uint64_t encode_floating(const Element& element, double value);

}  // namespace perf
