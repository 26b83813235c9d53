// ddp.cpp: the data-parallel part of train.h: checks handles and arguments, and calls src/train.
#include <cstddef>
#include <set>

#include "src/api/training/compressor.hpp"
#include "src/api/training/handle.hpp"
#include "src/api/training/model_memory.hpp"
#include "src/api/training/structs.hpp"
#include "src/api/training/tensors.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/ddp.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainDdp : TrainingHandle<weftTrainDdp, train::Ddp> {
    static constexpr uint64_t living = 0x7466657774646470u, destroyed = 0x7466657774646561u;
    static constexpr const char* name = "ddp";
    static constexpr const char* maker = "weftTrainDdpCreate";
};

namespace {

// The size in the first version; later versions only append fields.
constexpr size_t first_config_size = offsetof(weftTrainDdpConfig_t, hookContext) + sizeof(void*);

Status check_stream(const char* function, const train::Ddp& ddp, weftStream_t stream) {
    if (ddp.on_device() && is_host_stream(stream))
        return fail(error::argument_stream, "{}: the object lies on a device: stream must be a CUDA stream", function);
    if (ddp.on_device()) return ddp.check_stream(function, stream);
    if (!stream) return ok();
    return fail(error::argument_stream, "{}: stream must be NULL, because the object lies in host memory", function);
}

Status read_tensors(const weftTrainTensor_t* tensors, size_t count, const char* kind, bool has_gradient,
                    std::vector<train::Tensor>& read) {
    if (!tensors && count > 0)
        return fail(error::argument_null, "weftTrainDdpCreate: the {}s are NULL, but there are {}", kind, count);
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        const auto tensor = read_entry(tensors, i, kind);
        if (!tensor) return tensor.status().copy();
        WEFT_TRY(check_tensor(*tensor, kind, i, has_gradient, names));
        if (!tensor->data && tensor->count > 0)
            return fail(error::argument_null, "{} {}, \"{}\", has {} elements, but its data is NULL", kind, i,
                        tensor->name, tensor->count);
        read.push_back({tensor->name,
                        tensor->data,
                        has_gradient ? tensor->gradient : nullptr,
                        {tensor->datatype, tensor->count, tensor->rows}});
    }
    return ok();
}

Status read_config(const weftTrainDdpConfig_t* given, const std::vector<train::TensorFacts>& parameters,
                   train::Settings& settings) {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_config_size, WEFT_TRAIN_DDP_CONFIG_MAGIC,
                                "WEFT_TRAIN_DDP_CONFIG_INITIALIZER", config));
    if (config.divisor != weftTrainDivideByRanks && config.divisor != weftTrainDivideByActive)
        return fail(error::argument_config, "config.divisor is {}; it is a weftTrainDivisor_t", int(config.divisor));
    const std::pair<const char*, int> switches[] = {{"findUnused", config.findUnused},
                                                    {"staticGraph", config.staticGraph},
                                                    {"broadcastBuffers", config.broadcastBuffers},
                                                    {"join", config.join}};
    for (const auto& [name, value] : switches)
        if (!is_switch(value)) return fail(error::argument_config, "config.{} is {}; it must be 0 or 1", name, value);
    settings = {config.bucketCapBytes,
                config.divisor == weftTrainDivideByActive,
                config.findUnused == 1,
                config.staticGraph == 1,
                config.broadcastBuffers == 1,
                config.join == 1,
                false,
                config.hook,
                config.hookContext,
                ""};
    if (config.hook != weftTrainHookCompress) return ok();
    auto described = compressor_settings(config.hookContext, parameters);
    if (!described) return described.take_status();
    settings.hook_settings = std::move(*described);
    return ok();
}

Status report_all(const char* function, train::Ddp& ddp, std::span<const int> parameters, weftStream_t stream) {
    for (const int parameter : parameters) WEFT_TRY(check_parameter(function, ddp, parameter));
    WEFT_TRY(check_stream(function, ddp, stream));
    return ddp.ready(parameters, stream);
}

// A model may have thousands of gradients. On host memory a report computes nothing and has no cancellation point.
weftResult_t report_gradients(const char* function, weftTrainDdp* ddp, std::span<const int> parameters,
                              weftStream_t stream) {
    return guarded_bare_training(function, ddp, [&](train::Ddp& own) -> Status {
        if (!own.on_device()) [[likely]]
            return report_all(function, own, parameters, stream);
        const CancelHeld held;
        const FloatMode mode;
        return report_all(function, own, parameters, stream);
    });
}

}  // namespace

extern "C" {

weftResult_t weftTrainDdpCreate(weftTrainDdp_t* ddp, weftComm_t comm, const weftTrainTensor_t* parameters,
                                size_t parameterCount, const weftTrainTensor_t* buffers, size_t bufferCount,
                                const weftTrainDdpConfig_t* config) {
    return guarded([&]() -> Status {
        if (ddp) *ddp = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainDdpCreate"));
        train::Model model;
        std::vector<train::TensorFacts> parameter_facts;
        std::unique_ptr<train::MemorySpace> space;
        const auto read = [&]() -> Status {
            if (!ddp)
                return fail(error::argument_null,
                            "weftTrainDdpCreate: ddp is NULL: pass the address of a weftTrainDdp_t");
            if (parameterCount == 0 || parameterCount > INT32_MAX)
                return fail(error::argument_value, "weftTrainDdpCreate: parameterCount is {}; it must be 1 to {}",
                            parameterCount, INT32_MAX);
            WEFT_TRY(read_tensors(parameters, parameterCount, "parameter", true, model.parameters));
            WEFT_TRY(read_tensors(buffers, bufferCount, "buffer", false, model.buffers));
            parameter_facts = train::facts_of(model.parameters);
            WEFT_TRY(read_config(config, parameter_facts, model.settings));
            auto found = space_of({&model.parameters, &model.buffers}, comm);
            if (!found) return found.take_status();
            space = std::move(*found);
            model.settings.on_device = space->on_device();
            if (model.settings.hook == weftTrainHookCompress)
                WEFT_TRY(prepare_compressor(model.settings.hook_context, space->device()));
            return ok();
        };
        // A rank that fails tells the others, which wait for it.
        Status own = read();
        const train::Settings settings = model.settings;
        auto made = train::Ddp::make(std::move(own), std::move(model), std::move(space), comm);
        if (!made) return made.take_status();
        if (settings.hook == weftTrainHookCompress)
            WEFT_TRY(serve_by_compressor(settings.hook_context, (*made)->hook_life(), parameter_facts));
        *ddp = keep_training<weftTrainDdp>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainDdpDestroy(weftTrainDdp_t ddp) { return destroy_training("weftTrainDdpDestroy", ddp); }

weftResult_t weftTrainDdpAbort(weftTrainDdp_t ddp) { return abort_training(ddp); }

weftResult_t weftTrainDdpGetAsyncError(weftTrainDdp_t ddp, weftResult_t* result) {
    return guarded_training("weftTrainDdpGetAsyncError", ddp, [&](train::Ddp& own) -> Status {
        if (!result) return fail(error::argument_null, "weftTrainDdpGetAsyncError: result is NULL");
        const Status state = own.state();
        *result = state ? weftSuccess : report(state);
        return ok();
    });
}

weftResult_t weftTrainDdpBegin(weftTrainDdp_t ddp, weftTrainMode_t mode, weftStream_t stream) {
    return guarded_training("weftTrainDdpBegin", ddp, [&](train::Ddp& own) -> Status {
        if (mode != weftTrainSynchronize && mode != weftTrainAccumulate)
            return fail(error::argument_value, "weftTrainDdpBegin: mode is {}; it must be a weftTrainMode_t",
                        int(mode));
        WEFT_TRY(check_stream("weftTrainDdpBegin", own, stream));
        return own.begin(mode, stream);
    });
}

weftResult_t weftTrainDdpGetGradient(weftTrainDdp_t ddp, int parameter, void** gradient) {
    return guarded_training("weftTrainDdpGetGradient", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetGradient", own, parameter));
        if (!gradient) return fail(error::argument_null, "weftTrainDdpGetGradient: gradient is NULL");
        *gradient = own.gradient(parameter);
        return ok();
    });
}

weftResult_t weftTrainDdpGradientReady(weftTrainDdp_t ddp, int parameter, weftStream_t stream) {
    return report_gradients("weftTrainDdpGradientReady", ddp, {&parameter, 1}, stream);
}

weftResult_t weftTrainDdpGradientsReady(weftTrainDdp_t ddp, const int* parameters, size_t count, weftStream_t stream) {
    if (!parameters && count > 0)
        return guarded(
            []() -> Status { return fail(error::argument_null, "weftTrainDdpGradientsReady: parameters is NULL"); });
    return report_gradients("weftTrainDdpGradientsReady", ddp, {parameters, count}, stream);
}

weftResult_t weftTrainDdpFinish(weftTrainDdp_t ddp, weftStream_t stream) {
    return guarded_training("weftTrainDdpFinish", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_stream("weftTrainDdpFinish", own, stream));
        return own.finish(stream);
    });
}

weftResult_t weftTrainDdpJoin(weftTrainDdp_t ddp, weftStream_t stream) {
    return guarded_training("weftTrainDdpJoin", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_stream("weftTrainDdpJoin", own, stream));
        return own.join(stream);
    });
}

weftResult_t weftTrainDdpGetUsed(weftTrainDdp_t ddp, int parameter, int* used) {
    return guarded_training("weftTrainDdpGetUsed", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetUsed", own, parameter));
        if (!used) return fail(error::argument_null, "weftTrainDdpGetUsed: used is NULL");
        *used = own.used(parameter) ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainDdpGetReduced(weftTrainDdp_t ddp, int* reduced) {
    return guarded_training("weftTrainDdpGetReduced", ddp, [&](train::Ddp& own) -> Status {
        if (!reduced) return fail(error::argument_null, "weftTrainDdpGetReduced: reduced is NULL");
        *reduced = own.reduced() ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainDdpGetBucket(weftTrainDdp_t ddp, int parameter, int* bucket) {
    return guarded_training("weftTrainDdpGetBucket", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetBucket", own, parameter));
        if (!bucket) return fail(error::argument_null, "weftTrainDdpGetBucket: bucket is NULL");
        *bucket = own.bucket_of(parameter);
        return ok();
    });
}

weftResult_t weftTrainDdpZeroGradients(weftTrainDdp_t ddp, weftStream_t stream) {
    return guarded_training("weftTrainDdpZeroGradients", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_stream("weftTrainDdpZeroGradients", own, stream));
        return own.zero_gradients(stream);
    });
}

weftResult_t weftTrainDdpGetCounts(weftTrainDdp_t ddp, int* parameters, int* buckets) {
    return guarded_training("weftTrainDdpGetCounts", ddp, [&](train::Ddp& own) -> Status {
        if (parameters) *parameters = own.parameter_count();
        if (buckets) *buckets = own.bucket_count();
        return ok();
    });
}

weftResult_t weftTrainHookAverage(const weftTrainBucket_t* bucket, void*) {
    return guarded([&]() -> Status {
        auto owner = train::owner_of(bucket);
        return owner ? train::average(*bucket) : owner.take_status();
    });
}

weftResult_t weftTrainHookFloat16(const weftTrainBucket_t* bucket, void*) {
    return guarded([&]() -> Status {
        auto owner = train::owner_of(bucket);
        return owner ? train::average_as(*bucket, weftFloat16) : owner.take_status();
    });
}

weftResult_t weftTrainHookBfloat16(const weftTrainBucket_t* bucket, void*) {
    return guarded([&]() -> Status {
        auto owner = train::owner_of(bucket);
        return owner ? train::average_as(*bucket, weftBfloat16) : owner.take_status();
    });
}

weftResult_t weftTrainBucketScratch(const weftTrainBucket_t* bucket, size_t bytes, void** scratch) {
    return guarded([&]() -> Status {
        if (!scratch) return fail(error::argument_null, "weftTrainBucketScratch: scratch is NULL");
        *scratch = nullptr;
        auto owner = train::owner_of(bucket);
        if (!owner) return owner.take_status();
        auto memory = (*owner)->buckets->scratch((*owner)->index, bytes);
        if (!memory) return memory.take_status();
        *scratch = *memory;
        return ok();
    });
}
}
