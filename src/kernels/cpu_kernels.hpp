// cpu_kernels.hpp: the loops that copy and reduce on the CPU, one set for each instruction set (ISA). All sets give the
// same bits as base/arithmetic.hpp, except for the payload of a NaN. Reentrant.
// Buffers may have any alignment. A destination may equal a source or another destination, but not overlap it partially.
#pragma once
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/kernels/optimizer_formulas.hpp"
#include "weft/types.h"

namespace weft::internal {

// streaming: bypass the caches if the destination is aligned and long enough. A kernel that streams ends with a store
// fence, so that other ranks see a later flag after the data, as with ordinary stores.
enum class Stores : uint8_t { ordinary, streaming };

// destinations[j][i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ..., rounded to the type, for each
// i < count. weftAvg adds and divides by the rule of averaging() in base/arithmetic.hpp.
struct ReduceJob {
    static constexpr int every_source = -1, no_source = -2;
    void* const* destinations;  // at least one
    int destination_count;
    const void* const* sources;  // at least one
    int source_count;
    size_t count;         // elements
    uint32_t average_of;  // only weftAvg, of a complete sum (Averaging); otherwise 0
    Stores stores;
    int streamed = INT_MAX;  // how many of the destinations, from the first on, may be streamed
    uint32_t share_of = 0;   // only weftAvg (Averaging)
    // Only weftAvg: the index of the source that is a contribution. Its share is rounded to the type, and the others are
    // sums. With every_source all are contributions, and no share is rounded.
    int contribution = every_source;
};

struct CopyJob {
    void* destination;
    const void* source;
    size_t bytes;
    Stores stores;
};

// Loops over fp32 arrays of `count` elements. An array that is written does not overlap another one.
struct OptimizerKernels {
    // `momentum` may be null, if step.momentum is 0.
    void (*sgd)(const SgdStep& step, float* values, float* momentum, const float* gradient, size_t count);
    void (*adam)(const AdamStep& step, float* values, float* first, float* second, const float* gradient, size_t count);
    // LAMB's halves: the direction, which may replace the gradient; then, with the layer's rate, moments and weights.
    // Moments change in the second half only, because the reduction between them may fail.
    void (*lamb_direction)(const AdamStep& step, const float* values, const float* first, const float* second,
                           const float* gradient, float* direction, size_t count);
    void (*lamb)(const AdamStep& step, float rate, float* values, float* first, float* second, const float* gradient,
                 size_t count);
    double (*squares)(const float* values, size_t count);
    bool (*all_finite)(const float* values, size_t count);
};

struct CpuKernels {
    const char* isa;  // "avx512", "avx2", "neon" or "plain"
    // Null if the reduction does not exist for the type (base/datatype.hpp); likewise below.
    void (*reduce[weftNumTypes][weftNumOps])(const ReduceJob& job);
    void (*copy)(const CopyJob& job);
    // destination[i] = scalar * source[i], rounded to the type; `scalar` points to one element of the type.
    void (*scale[weftNumTypes])(void* destination, const void* source, size_t count, const void* scalar);
    // destination[i] = source[i]: narrow rounds fp32 to the type, and widen does the reverse. Null unless the type is a
    // float of 16 bits. The buffers are disjoint.
    void (*narrow[weftNumTypes])(void* destination, const void* source, size_t count);
    void (*widen[weftNumTypes])(void* destination, const void* source, size_t count);
    OptimizerKernels optimizers;
    // Advances three streams in turns within one loop, so that their cache misses overlap: the copies of `staging`, the
    // reduction, and the copies of `results`. The copies of a stream follow each other. No stream may write memory that
    // another reads or writes. Any count may be 0.
    void (*fused[weftNumTypes][weftNumOps])(const CopyJob* staging, int staging_count, const ReduceJob& reduction,
                                            const CopyJob* results, int results_count);
};

// The best set that this machine can run; the choice is made once.
const CpuKernels& cpu_kernels();
// The set with that name; null if there is none or this machine cannot run it.
const CpuKernels* find_cpu_kernels(std::string_view isa);
// Every set that this machine can run, best first.
std::span<const CpuKernels* const> all_cpu_kernels();

}  // namespace weft::internal
