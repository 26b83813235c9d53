// statistics.cpp: batch norm and samples of train.h: checks arguments, and calls src/train.
#include <cmath>
#include <cstddef>
#include <initializer_list>
#include <optional>

#include "src/api/training/handle.hpp"
#include "src/api/training/parts.hpp"
#include "src/api/training/structs.hpp"
#include "src/comm/facts.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/memory_space.hpp"
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
    return layer;
}

train::BatchNormShape shape_of(const weftTrainBatchNorm_t& layer) {
    return {layer.batch, layer.channels, layer.inner, layer.datatype};
}

struct NamedArray {
    const char* name;
    const void* memory;
    bool needed;
};

// The device that all of a call's arrays lie on; -1: host memory.
Result<int> device_of_arrays(const char* function, std::initializer_list<NamedArray> arrays) {
    const train::DeviceFinder device_of = train::device_finder();
    std::optional<int> common;
    for (const auto& [name, memory, needed] : arrays) {
        if (!memory && needed) return fail(error::argument_null, "{}: {} is NULL", function, name);
        if (!memory) continue;
        auto found = device_of(memory);
        if (!found) return found.take_status();
        if (common && *common != *found)
            return fail(error::argument_device,
                        "{}: {} lies in another memory than what stands before it: all arrays lie in host memory, or "
                        "on the communicator's device",
                        function, name);
        common = *found;
    }
    return common.value_or(-1);
}

Status check_stream_for(const char* function, int device, weftComm_t comm, weftStream_t stream) {
    if (device < 0) return check_host_call(function, stream);
    if (is_host_stream(stream))
        return fail(error::argument_stream, "{}: the arrays lie on a device: stream must be a CUDA stream", function);
    const auto communicator = comm->share();
    if (!communicator) return check_handle(comm);
    const auto own = cuda_device(*communicator);
    if (!own) return own.status().copy();
    if (*own != device)
        return fail(error::argument_device, "{}: the arrays lie on device {}, but the communicator's device is {}",
                    function, device, *own);
    return train::check_device_stream(function, device, stream);
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
        auto read = read_layer(function, layer);
        if (!read) return read.take_status();
        train::BatchNormForward forward = {
            shape_of(*read),       x,     read->epsilon, read->momentum, mean, invstd, read->runningMean,
            read->runningVariance, count, false};
        const auto device = device_of_arrays(function, {{"mean", mean, true},
                                                        {"invstd", invstd, true},
                                                        {"x", x, forward.shape.count() > 0},
                                                        {"layer.runningMean", read->runningMean, false},
                                                        {"layer.runningVariance", read->runningVariance, false}});
        if (!device) return device.status().copy();
        WEFT_TRY(check_stream_for(function, *device, comm, stream));
        const auto of_count = train::device_of(count);
        if (!of_count) return of_count.status().copy();
        forward.count_on_device = *of_count >= 0;
        if (forward.count_on_device && *of_count != *device)
            return fail(error::argument_device, "{}: count lies on device {}, but the arrays do not", function,
                        *of_count);
        if (*device < 0) return train::batch_norm(forward, comm);
        return train::batch_norm(forward, *device, comm, stream);
    });
}

weftResult_t weftTrainBatchNormBackward(const weftTrainBatchNorm_t* layer, const void* x, const void* dy,
                                        const float* mean, float* ownSums, float* sums, weftComm_t comm,
                                        weftStream_t stream) {
    constexpr const char* function = "weftTrainBatchNormBackward";
    return guarded([&]() -> Status {
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group(function));
        auto read = read_layer(function, layer);
        if (!read) return read.take_status();
        const train::BatchNormBackward backward = {shape_of(*read), x, dy, mean, ownSums, sums};
        const bool has_elements = backward.shape.count() > 0;
        const auto device = device_of_arrays(function, {{"mean", mean, true},
                                                        {"sums", sums, true},
                                                        {"x", x, has_elements},
                                                        {"dy", dy, has_elements},
                                                        {"ownSums", ownSums, false}});
        if (!device) return device.status().copy();
        WEFT_TRY(check_stream_for(function, *device, comm, stream));
        if (*device < 0) return train::batch_norm(backward, comm);
        return train::batch_norm(backward, *device, comm, stream);
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
