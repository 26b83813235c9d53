#include "src/train/optimizer/batch_norm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/train/optimizer/parts.hpp"
#include "src/train/peers.hpp"

namespace weft::internal::train {

namespace {

// Calls body(channel, x, dy, count) for all elements, in runs of one channel. `dy` may be null.
template <class Body>
void for_each_run(const BatchNormShape& shape, const void* x, const void* dy, Body&& body) {
    alignas(64) float scratch[2][block_elements];
    for_each_block(shape.count() * shape.channels, [&](size_t first, size_t count) {
        const float* const xs = read_block(x, shape.datatype, first, count, scratch[0]);
        const float* const dys = dy ? read_block(dy, shape.datatype, first, count, scratch[1]) : nullptr;
        for (size_t i = 0; i < count;) {
            const size_t row = (first + i) / shape.inner;
            const size_t run = std::min((row + 1) * shape.inner - (first + i), count - i);
            body(row % shape.channels, xs + i, dys ? dys + i : nullptr, run);
            i += run;
        }
    });
}

// A message: of each channel the mean, of each channel the sum of squared distances to it, and the elements.
std::vector<double> own_statistics(const BatchNormShape& shape, const void* x) {
    std::vector<double> own(2 * shape.channels + 1, 0);
    own.back() = double(shape.count());
    if (shape.count() == 0) return own;
    for_each_run(shape, x, nullptr, [&](size_t channel, const float* xs, const float*, size_t count) {
        for (size_t i = 0; i < count; ++i) own[channel] += double(xs[i]);
    });
    for (size_t channel = 0; channel < shape.channels; ++channel) own[channel] /= double(shape.count());
    for_each_run(shape, x, nullptr, [&](size_t channel, const float* xs, const float*, size_t count) {
        double& sum = own[shape.channels + channel];
        for (size_t i = 0; i < count; ++i) sum += (double(xs[i]) - own[channel]) * (double(xs[i]) - own[channel]);
    });
    return own;
}

struct Moments {
    double count = 0, mean = 0, squares = 0;

    // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
    void add(const Moments& other) {
        if (other.count == 0) return;
        const double total = count + other.count, distance = other.mean - mean;
        squares += other.squares + distance * distance * count * other.count / total;
        mean += distance * other.count / total;
        count = total;
    }
};

}  // namespace

Result<uint64_t> batch_norm_forward(const BatchNormShape& shape, const void* x, weftComm_t comm, double epsilon,
                                    float* mean, float* invstd, const BatchNormRunning& running) {
    int ranks = 0;
    WEFT_TRY(called(weftCommCount(comm, &ranks)));
    const auto own = own_statistics(shape, x);
    std::vector<double> all(own.size() * size_t(ranks));
    WEFT_TRY(finished(weftAllGather(own.data(), all.data(), own.size(), weftFloat64, comm, nullptr), comm));
    double total = 0;
    for (int rank = 0; rank < ranks; ++rank) total += all[own.size() * size_t(rank) + 2 * shape.channels];
    if (total < 2)
        return fail(error::argument_count,
                    "a channel has {} elements over all ranks; batch norm needs at least 2 for a variance", total);
    for (size_t channel = 0; channel < shape.channels; ++channel) {
        Moments moments;
        for (int rank = 0; rank < ranks; ++rank) {
            const double* const from = &all[own.size() * size_t(rank)];
            moments.add({from[2 * shape.channels], from[channel], from[shape.channels + channel]});
        }
        mean[channel] = float(moments.mean);
        invstd[channel] = float(1 / std::sqrt(moments.squares / total + epsilon));
        const auto follow = [&](float* kept, double now) {
            if (kept) kept[channel] = float((1 - running.momentum) * double(kept[channel]) + running.momentum * now);
        };
        follow(running.mean, moments.mean);
        follow(running.variance, moments.squares / (total - 1));
    }
    return uint64_t(total);
}

Status batch_norm_backward(const BatchNormShape& shape, const void* x, const void* dy, const float* mean,
                           weftComm_t comm, float* own, float* all) {
    std::vector<double> sums(2 * shape.channels, 0);
    for_each_run(shape, x, dy, [&](size_t channel, const float* xs, const float* dys, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            sums[channel] += double(dys[i]);
            sums[shape.channels + channel] += double(dys[i]) * (double(xs[i]) - double(mean[channel]));
        }
    });
    if (own) std::copy(sums.begin(), sums.end(), own);
    WEFT_TRY(finished(weftAllReduce(sums.data(), sums.data(), sums.size(), weftFloat64, weftSum, comm, nullptr), comm));
    std::copy(sums.begin(), sums.end(), all);
    return ok();
}

}  // namespace weft::internal::train
