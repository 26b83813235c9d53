// hook_arguments.hpp: the arguments of the kernel of compressing hooks. Plain data with the same layout in the host's
// compiler and the device's. The host's counterpart is train/hooks.
#pragma once
#include <cstddef>
#include <cstdint>

#include "weft/types.h"

namespace weft::internal::cuda {

enum class HookWork : int32_t {
    // One number at a time. `first` and `second` are inputs.
    read,        // numbers = elements of the type at `memory`
    write,       // elements of the type at `memory` = numbers
    mix,         // numbers = factor * first + (1 - factor) * numbers
    add_scaled,  // numbers += factor * first
    subtract,    // numbers = first - second
    average,     // numbers = numbers / factor + first, which may be null: 0
    scale,       // numbers *= *scale
    unscale,     // numbers /= *scale
    keep,        // numbers = first, if the numbers that were measured are finite
    // Facts about all numbers, in HookFacts.
    measure,      // the largest magnitude; its word is zeroed before
    squares,      // the sum of squares of each chunk: to `sums`
    total,        // adds up the sums of all chunks of `count` numbers, and gives the root mean square
    layer_scale,  // the same, and sets *scale to its inverse
    // Messages at `memory`: a float32 scale, then each number. They need no alignment.
    encode_bits,
    decode_bits,
    encode_float8,  // of the type
    decode_float8,
    // Top-k: `kept` numbers of largest magnitude at `memory`. `counts` has selection_counts(count) words.
    count_high,  // how many numbers have each value of their upper bits
    find_high,   // the value from which on at most `kept` numbers remain
    count_low,   // the same for the lower bits
    find_low,
    count_parts,  // of each chunk: numbers above the threshold, and equal to it
    place_parts,  // where those of each chunk go
    select,
    add_selected,   // numbers += each of the list
    zero_selected,  // numbers = 0 for each of the list
    // PowerSGD: a matrix `first` of rows x columns, and the columns of its factors, `kept` of them.
    begin_right,     // numbers: columns of `columns` numbers each; zeros become random
    orthonormalize,  // numbers: columns of `rows` numbers each
    multiply_right,  // numbers = the matrix * second: columns of `rows` numbers
    multiply_left,   // numbers = the matrix transposed * second: columns of `columns` numbers
    product,         // numbers, of rows x columns = first * second transposed
};

// Of the worker's stream: a kernel's results, for later ones.
struct HookFacts {
    uint32_t largest_bits;  // of measure: the magnitude, as its bits
    uint32_t high;          // of find_high
    uint32_t least;         // of find_low: the threshold, as the bits of a magnitude
    uint32_t equal;         // so many numbers that equal the threshold are selected
    float root_mean_square;
};

// A number of a list of top-k.
struct IndexedNumber {
    uint32_t index;
    float number;
};

// Of PowerSGD.
struct HookMatrix {
    uint64_t rows, columns;
    uint64_t seed;  // of random columns
};

struct HookArguments {
    HookWork work;
    weftDataType_t type;
    uint64_t count;  // numbers; of lists: their entries
    float* numbers;
    const float *first, *second;
    void* memory;
    double* scale;
    HookFacts* facts;
    double* sums;      // of chunks
    uint32_t* counts;  // of selection
    uint64_t kept;
    uint64_t limit;  // of add_selected: the numbers that there are
    HookMatrix matrix;
    float factor;
};

inline constexpr int hook_threads = 128;
inline constexpr int hook_blocks_max = 2048;
inline constexpr uint64_t hook_chunk = 4096;  // numbers that a block takes at once
constexpr uint64_t hook_chunks(uint64_t count) { return (count + hook_chunk - 1) / hook_chunk; }

// The value of a magnitude has 31 bits: the upper ones are counted first.
inline constexpr unsigned selection_low_bits = 15;
inline constexpr uint64_t selection_values = uint64_t(1) << 16;
// Counts of values, then the number of larger and of equal numbers of each chunk.
constexpr uint64_t selection_counts(uint64_t count) { return selection_values + 2 * hook_chunks(count); }

inline constexpr const char* hook_entry_point = "weft_hook";

}  // namespace weft::internal::cuda
