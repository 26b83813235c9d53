// statistics.cpp: batch norm and samples of train.h: checks arguments, and calls src/train.
#include <cmath>
#include <cstddef>

#include "src/api/training/handle.hpp"
#include "src/api/training/parts.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/optimizer/batch_norm.hpp"
#include "src/train/optimizer/sampler.hpp"
#include "weft/train.h"

using namespace weft::internal;

namespace {

constexpr size_t first_layer_size = offsetof(weftTrainBatchNorm_t, runningVariance) + sizeof(float*);

Result<weftTrainBatchNorm_t> read_layer(const char* function, const weftTrainBatchNorm_t* given) {
    if (!given) return fail(error::argument_null, "{}: layer is NULL", function);
    const auto read = read_struct(given, 0, WEFT_TRAIN_BATCH_NORM_INITIALIZER, first_layer_size,
                                  fmt::format("{}: layer", function), "WEFT_TRAIN_BATCH_NORM_INITIALIZER");
    if (!read) return read.status().copy();
    const weftTrainBatchNorm_t& layer = *read;
    WEFT_TRY(check_float_type(function, "layer", layer.datatype));
    if (layer.channels == 0)
        return fail(error::argument_value, "{}: layer.channels is 0; it must be at least 1", function);
    size_t elements = 0;
    if (__builtin_mul_overflow(layer.batch, layer.inner, &elements) ||
        __builtin_mul_overflow(elements, layer.channels, &elements) || elements > size_t(1) << 48)
        return fail(error::argument_count, "{}: layer has {} x {} x {} elements, which is more than any memory holds",
                    function, layer.batch, layer.channels, layer.inner);
    WEFT_TRY(check_number(function, "layer.epsilon", layer.epsilon, layer.epsilon >= 0 && std::isfinite(layer.epsilon),
                          "a number that is not negative"));
    WEFT_TRY(check_number(function, "layer.momentum", layer.momentum, layer.momentum >= 0 && layer.momentum <= 1,
                          "at least 0 and at most 1"));
    for (const void* memory : {layer.runningMean, layer.runningVariance})
        WEFT_TRY(check_on_host(function, "layer", memory));
    return layer;
}

train::BatchNormShape shape_of(const weftTrainBatchNorm_t& layer) {
    return {layer.batch, layer.channels, layer.inner, layer.datatype};
}

Status check_array(const char* function, const char* name, const void* array, bool needed) {
    if (!array && needed) return fail(error::argument_null, "{}: {} is NULL", function, name);
    return check_on_host(function, name, array);
}

Status check_sampler(const char* function, uint64_t samples, int ranks, int drop_last) {
    if (ranks < 1) return fail(error::argument_value, "{}: ranks is {}; it must be at least 1", function, ranks);
    if (samples > uint64_t(1) << 48)
        return fail(error::argument_count, "{}: samples is {}; more than 2^48 are not possible", function, samples);
    return check_switch(function, "dropLast", drop_last);
}

}  // namespace

extern "C" {

weftResult_t weftTrainBatchNormForward(const weftTrainBatchNorm_t* layer, const void* x, float* mean, float* invstd,
                                       uint64_t* count, weftComm_t comm, weftStream_t stream) {
    constexpr const char* function = "weftTrainBatchNormForward";
    return guarded([&]() -> Status {
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group(function));
        WEFT_TRY(check_host_call(function, stream));
        auto read = read_layer(function, layer);
        if (!read) return read.take_status();
        const train::BatchNormShape shape = shape_of(*read);
        WEFT_TRY(check_array(function, "x", x, shape.count() > 0));
        WEFT_TRY(check_array(function, "mean", mean, true));
        WEFT_TRY(check_array(function, "invstd", invstd, true));
        auto found = train::batch_norm_forward(shape, x, comm, read->epsilon, mean, invstd,
                                               {read->momentum, read->runningMean, read->runningVariance});
        if (!found) return found.take_status();
        if (count) *count = *found;
        return ok();
    });
}

weftResult_t weftTrainBatchNormBackward(const weftTrainBatchNorm_t* layer, const void* x, const void* dy,
                                        const float* mean, float* ownSums, float* sums, weftComm_t comm,
                                        weftStream_t stream) {
    constexpr const char* function = "weftTrainBatchNormBackward";
    return guarded([&]() -> Status {
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group(function));
        WEFT_TRY(check_host_call(function, stream));
        auto read = read_layer(function, layer);
        if (!read) return read.take_status();
        const train::BatchNormShape shape = shape_of(*read);
        WEFT_TRY(check_array(function, "x", x, shape.count() > 0));
        WEFT_TRY(check_array(function, "dy", dy, shape.count() > 0));
        WEFT_TRY(check_array(function, "mean", mean, true));
        WEFT_TRY(check_array(function, "ownSums", ownSums, false));
        WEFT_TRY(check_array(function, "sums", sums, true));
        return train::batch_norm_backward(shape, x, dy, mean, comm, ownSums, sums);
    });
}

weftResult_t weftTrainSamplerCount(uint64_t samples, int ranks, int dropLast, uint64_t* count) {
    constexpr const char* function = "weftTrainSamplerCount";
    return guarded([&]() -> Status {
        WEFT_TRY(check_sampler(function, samples, ranks, dropLast));
        if (!count) return fail(error::argument_null, "{}: count is NULL", function);
        *count = train::samples_of_rank(samples, size_t(ranks), dropLast == 1);
        return ok();
    });
}

weftResult_t weftTrainSamplerIndices(uint64_t samples, int ranks, int rank, int dropLast, const uint64_t* order,
                                     uint64_t* indices) {
    constexpr const char* function = "weftTrainSamplerIndices";
    return guarded([&]() -> Status {
        WEFT_TRY(check_sampler(function, samples, ranks, dropLast));
        if (rank < 0 || rank >= ranks)
            return fail(error::argument_value, "{}: rank is {}; it must be 0 to {}", function, rank, ranks - 1);
        const size_t count = train::samples_of_rank(samples, size_t(ranks), dropLast == 1);
        if (!indices && count > 0) return fail(error::argument_null, "{}: indices is NULL", function);
        for (size_t i = 0; i < count; ++i) {
            const size_t place = train::sample_place(samples, size_t(ranks), size_t(rank), i);
            indices[i] = order ? order[place] : place;
        }
        return ok();
    });
}

weftResult_t weftTrainShuffle(uint64_t samples, uint64_t seed, uint64_t* order) {
    constexpr const char* function = "weftTrainShuffle";
    return guarded([&]() -> Status {
        WEFT_TRY(check_sampler(function, samples, 1, 0));
        if (!order && samples > 0) return fail(error::argument_null, "{}: order is NULL", function);
        train::shuffle(seed, {order, samples});
        return ok();
    });
}
}
