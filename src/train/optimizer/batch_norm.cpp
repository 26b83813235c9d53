#include "src/train/optimizer/batch_norm.hpp"

#include <algorithm>
#include <vector>

#include "src/gpu/kernels/training/batch_norm_channels.hpp"
#include "src/gpu/kernels/training/hook_elements.hpp"
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

}  // namespace

Status check_batch_norm_count(uint64_t total) {
    if (total >= 2) return ok();
    return fail(error::argument_count,
                "a channel has {} elements over all ranks; batch norm needs at least 2 for a variance", total);
}

Status batch_norm(const BatchNormForward& forward, weftComm_t comm) {
    const BatchNormShape& shape = forward.shape;
    int ranks = 0;
    WEFT_TRY(called(weftCommCount(comm, &ranks)));
    const auto own = own_statistics(shape, forward.x);
    std::vector<double> all(own.size() * size_t(ranks));
    WEFT_TRY(finished(weftAllGather(own.data(), all.data(), own.size(), weftFloat64, comm, nullptr), comm));
    uint64_t total = 0;
    for (int rank = 0; rank < ranks; ++rank) total += uint64_t(all[own.size() * size_t(rank) + 2 * shape.channels]);
    WEFT_TRY(check_batch_norm_count(total));
    cuda::BatchNormArguments arguments = {};
    arguments.form.channels = shape.channels;
    arguments.form.ranks = uint64_t(ranks);
    arguments.messages = all.data();
    arguments.epsilon = forward.epsilon;
    arguments.momentum = forward.momentum;
    arguments.results.mean = forward.mean;
    arguments.results.invstd = forward.invstd;
    arguments.results.running_mean = forward.running_mean;
    arguments.results.running_variance = forward.running_variance;
    arguments.results.count = forward.count;
    cuda::finish_channels(cuda::AllNumbers(), arguments);
    return ok();
}

Status batch_norm(const BatchNormBackward& backward, weftComm_t comm) {
    const BatchNormShape& shape = backward.shape;
    std::vector<double> sums(2 * shape.channels, 0);
    for_each_run(shape, backward.x, backward.dy, [&](size_t channel, const float* xs, const float* dys, size_t count) {
        for (size_t i = 0; i < count; ++i) {
            sums[channel] += double(dys[i]);
            sums[shape.channels + channel] += double(dys[i]) * (double(xs[i]) - double(backward.mean[channel]));
        }
    });
    if (backward.own) std::copy(sums.begin(), sums.end(), backward.own);
    WEFT_TRY(finished(weftAllReduce(sums.data(), sums.data(), sums.size(), weftFloat64, weftSum, comm, nullptr), comm));
    std::copy(sums.begin(), sums.end(), backward.all);
    return ok();
}

}  // namespace weft::internal::train
