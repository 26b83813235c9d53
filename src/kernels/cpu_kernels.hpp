// cpu_kernels.hpp: the loops that move and reduce bytes on the CPU, in one set for each instruction set (ISA). All sets give
// the same bits, those of base/arithmetic.hpp; only which NaN comes out of a NaN is open. Reentrant.
//
// Buffers may lie at any address, aligned to their elements or not. A destination may equal a source (or another
// destination) exactly; it must not overlap one partially.
#pragma once
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/types.h"

namespace weft::internal {

// streaming: past the caches, where the destination's address allows it and it is long enough to pay. A kernel that has
// streamed ends with a store fence, so that a flag stored afterwards is seen after the data, as with ordinary stores.
enum class Stores : uint8_t { ordinary, streaming };

// destinations[j][i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ..., rounded to the type, for each
// i < count. weftAvg adds, and divides as averaging() in base/arithmetic.hpp says.
struct ReduceJob {
    static constexpr int every_source = -1, no_source = -2;
    void* const* destinations;  // at least one
    int destination_count;
    const void* const* sources;  // at least one
    int source_count;
    size_t count;         // elements
    uint32_t average_of;  // weftAvg alone, of a complete sum: see Averaging; otherwise 0
    Stores stores;
    int streamed =
        INT_MAX;  // of the destinations only the first so many are streamed: slots that peers read soon are not
    // weftAvg alone: see Averaging. The source of that number is a contribution, whose share is rounded to the type;
    // every_source: all are, and no share is rounded; the others are sums.
    uint32_t share_of = 0;
    int contribution = every_source;
};

struct CopyJob {
    void* destination;
    const void* source;
    size_t bytes;
    Stores stores;
};

struct CpuKernels {
    const char* isa;  // "avx512", "avx2", "neon" or "plain"
    // Null where the reduction does not serve the type (base/datatype.hpp); likewise below.
    void (*reduce[weftNumTypes][weftNumOps])(const ReduceJob& job);
    void (*copy)(const CopyJob& job);
    // destination[i] = scalar * source[i], rounded to the type; `scalar` points to one element of the type.
    void (*scale[weftNumTypes])(void* destination, const void* source, size_t count, const void* scalar);
    // Three streams advanced in turn within one loop, for the misses of one then overlap those of the others: the
    // copies of `staging`, the reduction, and the copies of `results`. Copies of one stream follow each other. No
    // stream may write what another reads or writes. reduction.count may be 0, and both counts of copies.
    void (*fused[weftNumTypes][weftNumOps])(const CopyJob* staging, int staging_count, const ReduceJob& reduction,
                                            const CopyJob* results, int results_count);
};

// The best set that this machine can run; the choice is made once.
const CpuKernels& cpu_kernels();
// The set of that name, or nullptr if there is none or this machine cannot run it.
const CpuKernels* find_cpu_kernels(std::string_view isa);
// Every set that this machine can run, best first.
std::span<const CpuKernels* const> all_cpu_kernels();

}  // namespace weft::internal
