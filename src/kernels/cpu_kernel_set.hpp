// cpu_kernel_set.hpp: the fused loop, and the table of all CPU kernels of one instruction set (simd_vector.hpp).
// The including file defines WEFT_CPU_KERNELS, the table's name, and WEFT_CPU_KERNELS_ISA, the name in text.
#pragma once
#include "src/kernels/convert_loops.hpp"
#include "src/kernels/copy_loops.hpp"
#include "src/kernels/optimizer_loops.hpp"
#include "src/kernels/reduce_loops.hpp"

namespace weft::internal {
namespace {

// Bytes per round of the shortest and the longest stream. A round is short enough for the processor's reorder window,
// and long enough that switching between streams costs nothing.
constexpr size_t least_step_bytes = 256;
constexpr size_t most_step_bytes = 2048;

WEFT_INLINE size_t total_bytes(const CopyJob* jobs, int count) {
    size_t bytes = 0;
    for (int i = 0; i < count; ++i) bytes += jobs[i].bytes;
    return bytes;
}
WEFT_INLINE bool any_streaming(const CopyJob* jobs, int count) {
    bool streaming = false;
    for (int i = 0; i < count; ++i) streaming |= jobs[i].stores == Stores::streaming;
    return streaming;
}

void run_fused(const CopyJob* staging, int staging_count, const ReduceJob& reduction, ReduceRange range,
               size_t element_bytes, const CopyJob* results, int results_count) {
    // All three streams end in the same round, so each steps in proportion to its length, in whole lines.
    const size_t length[] = {total_bytes(staging, staging_count), reduction.count * element_bytes,
                             total_bytes(results, results_count)};
    size_t rounds = SIZE_MAX, least_rounds = 1;
    for (const size_t bytes : length) {
        if (bytes && bytes / least_step_bytes < rounds) rounds = bytes / least_step_bytes;
        if (bytes / most_step_bytes > least_rounds) least_rounds = bytes / most_step_bytes;
    }
    if (rounds == SIZE_MAX || rounds < least_rounds) rounds = least_rounds;
    size_t step[3];
    for (int k = 0; k < 3; ++k) step[k] = (length[k] / rounds + line_bytes - 1) / line_bytes * line_bytes;

    CopySteps staging_steps(staging, staging_count);
    CopySteps results_steps(results, results_count);
    const size_t elements = step[1] / element_bytes;
    size_t i = 0;
    if (reduction.count && reduction.stores == Stores::streaming) {
        i = elements_to_line(reduction, element_bytes);
        if (i) range(reduction, 0, i);
    }
    for (size_t round = 0; round < rounds; ++round) {
        staging_steps.advance(step[0]);
        const size_t end = reduction.count - i < elements ? reduction.count : i + elements;
        if (i < end) range(reduction, i, end);
        i = end;
        results_steps.advance(step[2]);
    }
    // The remainder after the rounds.
    staging_steps.advance(SIZE_MAX);
    if (i < reduction.count) range(reduction, i, reduction.count);
    results_steps.advance(SIZE_MAX);
    if (reduction.stores == Stores::streaming || any_streaming(staging, staging_count) ||
        any_streaming(results, results_count)) {
        fence_streaming();
    }
}

template <weftDataType_t type, weftRedOp_t op>
void fused(const CopyJob* staging, int staging_count, const ReduceJob& reduction, const CopyJob* results,
           int results_count) {
    run_fused(staging, staging_count, reduction, range_for<type, op>(reduction.source_count), sizeof(ElementOf<type>),
              results, results_count);
}

// Bitwise reductions do not depend on the sign: one loop for each width.
constexpr weftDataType_t without_sign(weftDataType_t type) {
    return type == weftInt8 ? weftUint8 : type == weftInt32 ? weftUint32 : type == weftInt64 ? weftUint64 : type;
}
template <weftDataType_t type, weftRedOp_t op>
constexpr void add_pair(CpuKernels& set) {
    if constexpr (serves(op, type)) {
        constexpr weftDataType_t as = is_bitwise(op) ? without_sign(type) : type;
        set.reduce[type][op] = reduce<as, op>;
        set.fused[type][op] = fused<as, op>;
    }
}
template <weftDataType_t type>
constexpr void add_type(CpuKernels& set) {
    set.scale[type] = scale<type>;
#define WEFT_REDUCTION(op, name) add_pair<type, op>(set);
#include "src/base/reduction.def"
#undef WEFT_REDUCTION
}

constexpr CpuKernels make_cpu_kernels() {
    CpuKernels set{};
    set.isa = WEFT_CPU_KERNELS_ISA;
    set.copy = copy;
    set.narrow[weftFloat16] = narrow<weftFloat16>;
    set.widen[weftFloat16] = widen<weftFloat16>;
    set.narrow[weftBfloat16] = narrow<weftBfloat16>;
    set.widen[weftBfloat16] = widen<weftBfloat16>;
    set.optimizers = {sgd_step, adam_step, lamb_direction_of, lamb_step, sum_of_squares, all_finite};
#define WEFT_DATATYPE(type, name, bytes) add_type<type>(set);
#include "src/base/datatype.def"
#undef WEFT_DATATYPE
    return set;
}
constexpr CpuKernels set = make_cpu_kernels();

}  // namespace

extern const CpuKernels WEFT_CPU_KERNELS;
constinit const CpuKernels WEFT_CPU_KERNELS = set;

}  // namespace weft::internal
