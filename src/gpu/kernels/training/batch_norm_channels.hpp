// batch_norm_channels.hpp: the statistics of channels from those of all ranks. The host's loop is the same code.
#pragma once
#include "src/gpu/kernels/device.hpp"
#include "src/gpu/kernels/training/batch_norm_arguments.hpp"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace weft::internal::cuda {

struct Moments {
    double count = 0, mean = 0, squares = 0;

    // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    WEFT_DEVICE void add(const Moments& other) {
        if (other.count == 0) return;
        const double total = count + other.count, distance = other.mean - mean;
        squares += other.squares + distance * distance * count * other.count / total;
        mean += distance * other.count / total;
        count = total;
    }
};

WEFT_DEVICE float running(double kept, double now, double momentum) {
    return float((1 - momentum) * kept + momentum * now);
}

// Fewer than two elements have no variance: the results are NaN then, and the running statistics stay.
template <class Range>
WEFT_DEVICE void finish_channels(const Range& own, const BatchNormArguments& a) {
    const uint64_t size = 2 * a.form.channels + 1;
    for (uint64_t c = own.first; c < a.form.channels; c += own.step) {
        Moments all;
        for (uint64_t rank = 0; rank < a.form.ranks; ++rank) {
            const double* const from = a.messages + rank * size;
            all.add({from[2 * a.form.channels], from[c], from[a.form.channels + c]});
        }
        if (c == 0 && a.results.count) *a.results.count = uint64_t(all.count);
        if (all.count < 2) {
            a.results.mean[c] = a.results.invstd[c] = __builtin_nanf("");
            continue;
        }
        a.results.mean[c] = float(all.mean);
        a.results.invstd[c] = float(1 / sqrt(all.squares / all.count + a.epsilon));
        if (a.results.running_mean)
            a.results.running_mean[c] = running(double(a.results.running_mean[c]), all.mean, a.momentum);
        if (a.results.running_variance)
            a.results.running_variance[c] =
                running(double(a.results.running_variance[c]), all.squares / (all.count - 1), a.momentum);
    }
}

}  // namespace weft::internal::cuda
