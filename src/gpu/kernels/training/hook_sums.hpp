// hook_sums.hpp: sums over many numbers, added up in an order that does not depend on the number of threads. The host
// calls the same code as a block of one thread.
#pragma once
#include "src/base/block_scale.hpp"
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/hook_arguments.hpp"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace weft::internal::cuda {

// Memory of one block.
struct HookBlock {
    union {
        double wide[hook_threads];
        float narrow[hook_threads];
        uint32_t words[2 * hook_threads];
    };
};

WEFT_DEVICE double root(double value) { return sqrt(value); }

// Each of `lanes` adds up every lanes-th term; then the lanes are added up in halves. All threads get the sum.
template <int lanes, class Real, class Term>
WEFT_DEVICE Real laned_sum(const Team& team, Real* shared, uint64_t begin, uint64_t end, Term&& term) {
    for (int lane = team.thread; lane < lanes; lane += team.threads) {
        Real sum = 0;
        for (uint64_t i = begin + uint64_t(lane); i < end; i += lanes) sum += term(i);
        shared[lane] = sum;
    }
    for (int half = lanes / 2; half > 0; half /= 2) {
        team.barrier();
        for (int lane = team.thread; lane < half; lane += team.threads) shared[lane] += shared[lane + half];
    }
    team.barrier();
    const Real sum = shared[0];
    team.barrier();  // before the next use
    return sum;
}

// For each chunk of the block.
template <class Body>
WEFT_DEVICE void for_chunks(const Team& team, uint64_t count, Body&& body) {
    for (uint64_t c = uint64_t(team.block); c < hook_chunks(count); c += uint64_t(team.blocks)) {
        const uint64_t begin = c * hook_chunk;
        body(c, begin, count - begin < hook_chunk ? count : begin + hook_chunk);
    }
}

WEFT_DEVICE void sum_squares(const Team& team, const float* numbers, uint64_t count, double* sums, double* shared) {
    for_chunks(team, count, [&](uint64_t chunk, uint64_t begin, uint64_t end) {
        const double sum = laned_sum<hook_threads>(team, shared, begin, end,
                                                   [=](uint64_t i) { return double(numbers[i]) * double(numbers[i]); });
        if (team.thread == 0) sums[chunk] = sum;
    });
}
// The root of the mean of squares. For a block by itself.
WEFT_DEVICE double root_mean_square(const Team& team, const double* sums, uint64_t count, double* shared) {
    const double squares =
        laned_sum<hook_threads>(team, shared, 0, hook_chunks(count), [=](uint64_t chunk) { return sums[chunk]; });
    return root(squares / double(count > 0 ? count : 1));
}
WEFT_DEVICE void set_layer_scale(double* scale, double root_mean_square) {
    *scale = root_mean_square > 0 ? 1 / root_mean_square : 1;
}

}  // namespace weft::internal::cuda
