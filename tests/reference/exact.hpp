// exact.hpp: the right results of an all-reduce, without any schedule. Integers are modulo their width; floats are in
// long double, with a bound on the rounding of any order of the ranks. Also data on which the answers are sharp.
#pragma once
#include <cstddef>
#include <random>
#include <vector>

#include "weft/types.h"

namespace weft::internal::reference {

using Bytes = std::vector<std::byte>;

struct Question {
    weftDataType_t type;
    weftRedOp_t op;
    const std::vector<Bytes>* inputs;   // by rank
    const std::vector<Bytes>* scalars;  // by rank, one element each; null: none
};

// The index of the first element of `got` that is not an answer, or the number of elements. Integers, minima and maxima
// must be exact; other floats within the bound. `exact`: those too (data from whole()).
size_t first_wrong(const Question& question, const void* got, bool exact);

// The same for an average, or for a sum whose contributions are multiplied by 1 / divisor, on numbers at both ends of
// the type's range. Floats may be off by one rounding of the type for each rank. `inputs`: by rank, as many elements as
// `got` has.
//
// `wide`: the accumulator has room for exact sums (16- and 8-bit floats in one place), so the average of equal numbers
// is that number.
size_t first_beyond_roundings(weftDataType_t type, const std::vector<Bytes>& inputs, double divisor, bool wide,
                              const void* got);
// By rank: the largest numbers, subnormal ones and others, some of them equal on all ranks. Integers: any.
std::vector<Bytes> extremes(weftDataType_t type, size_t count, int ranks, std::mt19937& random);

// Elements of rank `rank` whose sums, and with scalars from whole_scalar() scaled sums, over `ranks` ranks are exact in
// the type, in any order.
Bytes whole(weftDataType_t type, size_t count, int ranks, int rank, std::mt19937& random);
Bytes whole_scalar(weftDataType_t type, std::mt19937& random);
// Elements near 1 of either sign: sums and products of 16 of them neither overflow nor vanish in any type. Integers:
// any.
Bytes mild(weftDataType_t type, size_t count, std::mt19937& random);

}  // namespace weft::internal::reference
