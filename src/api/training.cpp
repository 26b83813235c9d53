// training.cpp: train.h: checks handles and arguments, and calls src/train.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>

#include "src/api/guard.hpp"
#include "src/base/process_token.hpp"
#include "src/base/tombstones.hpp"
#include "src/comm/facts.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/ddp.hpp"
#include "weft/train.h"

using namespace weft::internal;

// Never freed: a destroyed one stays a tombstone, so that its use is an error message.
struct weftTrainDdp {
    static constexpr uint64_t living = 0x7466657774646470u, destroyed = 0x7466657774646561u;

    std::atomic<uint64_t> magic{living};
    uint64_t process = process_token();
    std::atomic<bool> inside{false};
    std::mutex mutex;  // guards `ddp`, for threads that are not inside
    std::shared_ptr<train::Ddp> ddp;
};

namespace {

// The sizes in the first version; later versions only append fields.
constexpr size_t first_tensor_size = offsetof(weftTrainTensor_t, datatype) + sizeof(weftDataType_t);
constexpr size_t most_tensor_size = 4096;  // a larger one was not initialised
constexpr size_t first_config_size = offsetof(weftTrainDdpConfig_t, hookContext) + sizeof(void*);

// Calls of these functions would become part of the group.
Status check_no_group(const char* function) {
    if (!Group::current_open()) return ok();
    return fail(error::train_iteration, "{}: a group is open on this thread: call weftGroupEnd first", function);
}

Status check_ddp(const weftTrainDdp* handle) {
    if (!handle) return fail(error::argument_handle, "ddp is NULL");
    const uint64_t magic = magic_of(handle);
    if (magic == weftTrainDdp::destroyed) return fail(error::argument_handle, "ddp was destroyed before");
    if (magic != weftTrainDdp::living)
        return fail(error::argument_handle, "{} was not made by weftTrainDdpCreate", static_cast<const void*>(handle));
    if (handle->process != process_token())
        return fail(error::usage_forked, "ddp was made before fork(); a child process makes its own");
    return ok();
}

// A hook must not wait for its own thread.
Status check_not_in_hook(const char* function, weftTrainDdp* handle) {
    std::lock_guard lock(handle->mutex);
    if (!handle->ddp || !handle->ddp->in_hook()) return ok();
    return fail(error::usage_in_function, "{}: the hook of the object called it: keep calls on ddp out of its hook",
                function);
}

// A call of one thread at a time.
template <class Body>
weftResult_t guarded_ddp(const char* function, weftTrainDdp* handle, Body&& body) noexcept {
    return guarded([&]() -> Status {
        WEFT_TRY(check_ddp(handle));
        WEFT_TRY(check_no_group(function));
        if (train::in_any_hook()) WEFT_TRY(check_not_in_hook(function, handle));
        if (handle->inside.exchange(true, std::memory_order_acquire))
            return fail(error::usage_threads,
                        "{}: another thread is inside this object: use it from one thread at a time", function);
        Status status;
        try {
            status = check_ddp(handle);  // another thread may have destroyed it meanwhile
            if (status) status = body(*handle->ddp);
        } catch (...) {
            if (handle->ddp) handle->ddp->end_by_exception();
            handle->inside.store(false, std::memory_order_release);
            throw;
        }
        handle->inside.store(false, std::memory_order_release);
        return status;
    });
}

Status check_parameter(const char* function, const train::Ddp& ddp, int parameter) {
    if (parameter >= 0 && parameter < ddp.parameter_count()) return ok();
    return fail(error::argument_value, "{}: parameter is {}; it must be 0 to {}", function, parameter,
                ddp.parameter_count() - 1);
}

Status check_stream(const char* function, const train::Ddp& ddp, weftStream_t stream) {
    if (ddp.on_device() && is_host_stream(stream))
        return fail(error::argument_stream, "{}: the object lies on a device: stream must be a CUDA stream", function);
    if (ddp.on_device()) return ddp.check_stream(function, stream);
    if (!stream) return ok();
    return fail(error::argument_stream, "{}: stream must be NULL, because the object lies in host memory", function);
}

// One of the caller's tensors. `kind` names it in errors.
Result<train::Tensor> read_tensor(const weftTrainTensor_t& tensor, const char* kind, size_t number, bool has_gradient) {
    const auto name = fmt::format("{} {}", kind, number);
    if (!tensor.name || !*tensor.name) return fail(error::argument_null, "{} has no name: set its field name", name);
    if (!is_datatype(tensor.datatype))
        return fail(error::argument_datatype, "the datatype of {}, \"{}\", is {}; types are 0 to {}", name, tensor.name,
                    int(tensor.datatype), weftNumTypes - 1);
    const bool differentiable = tensor.datatype == weftFloat16 || tensor.datatype == weftBfloat16 ||
                                tensor.datatype == weftFloat32 || tensor.datatype == weftFloat64;
    if (has_gradient && !differentiable)
        return fail(error::argument_datatype,
                    "{}, \"{}\", has {} elements; gradients are float16, bfloat16, float32 or float64. Register values "
                    "without a gradient as buffers",
                    name, tensor.name, name_of(tensor.datatype));
    if (tensor.count > size_t(1) << 48)
        return fail(error::argument_count, "{}, \"{}\", has {} elements, which is more than any memory holds", name,
                    tensor.name, tensor.count);
    if (!tensor.data && tensor.count > 0)
        return fail(error::argument_null, "{}, \"{}\", has {} elements, but its data is NULL", name, tensor.name,
                    tensor.count);
    return train::Tensor{
        tensor.name, tensor.data, has_gradient ? tensor.gradient : nullptr, {tensor.datatype, tensor.count}};
}

Status read_tensors(const weftTrainTensor_t* tensors, size_t count, const char* kind, bool has_gradient,
                    std::vector<train::Tensor>& read) {
    if (!tensors && count > 0)
        return fail(error::argument_null, "weftTrainDdpCreate: the {}s are NULL, but there are {}", kind, count);
    std::set<std::string> names;
    for (size_t i = 0; i < count; ++i) {
        const size_t size = tensors[0].size;
        weftTrainTensor_t tensor = WEFT_TRAIN_TENSOR_INITIALIZER;
        const auto* const place = reinterpret_cast<const std::byte*>(tensors) + i * size;
        if (size >= first_tensor_size && size <= most_tensor_size)
            memcpy(&tensor, place, std::min(size, sizeof tensor));
        if (size < first_tensor_size || size > most_tensor_size || tensor.size != size)
            return fail(error::argument_config,
                        "{} {} was not initialised: begin with weftTrainTensor_t tensor = "
                        "WEFT_TRAIN_TENSOR_INITIALIZER",
                        kind, i);
        auto one = read_tensor(tensor, kind, i, has_gradient);
        if (!one) return one.take_status();
        if (!names.insert(one->name).second)
            return fail(error::argument_value, "two {}s have the name \"{}\": names are different", kind, one->name);
        read.push_back(std::move(*one));
    }
    return ok();
}

bool is_switch(int value) { return value == 0 || value == 1; }

Status read_config(const weftTrainDdpConfig_t* given, train::Settings& settings) {
    weftTrainDdpConfig_t config = WEFT_TRAIN_DDP_CONFIG_INITIALIZER;
    if (given) {
        if (given->magic != WEFT_TRAIN_DDP_CONFIG_MAGIC || given->size < first_config_size)
            return fail(error::argument_config,
                        "the config was not initialised: begin with weftTrainDdpConfig_t config = "
                        "WEFT_TRAIN_DDP_CONFIG_INITIALIZER");
        memcpy(&config, given, std::min(given->size, sizeof config));
    }
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
                config.hookContext};
    return ok();
}

// The one kind of memory that all of the model lies in.
Result<std::unique_ptr<train::MemorySpace>> space_of(const train::Model& model, weftComm_t comm) {
    const auto communicator = comm->share();
    if (!communicator) return check_handle(comm);
    const auto own_device = cuda_device(*communicator);
    const int device = own_device ? *own_device : -1;
    std::optional<int> common;
    const auto check = [&](const std::string& name, const void* memory) -> Status {
        if (!memory) return ok();
        auto found = train::device_of(memory, device);
        if (!found) return found.take_status();
        if (common && *common != *found)
            return fail(error::argument_device,
                        "\"{}\" lies in another memory than what was registered before it: all parameters, gradients "
                        "and buffers lie in host memory, or on one device",
                        name);
        common = *found;
        return ok();
    };
    for (const std::vector<train::Tensor>* tensors : {&model.parameters, &model.buffers})
        for (const train::Tensor& tensor : *tensors) {
            if (tensor.facts.count == 0) continue;
            WEFT_TRY(check(tensor.name, tensor.data));
            WEFT_TRY(check(tensor.name, tensor.gradient));
        }
    if (common.value_or(-1) < 0) return train::host_space();
    if (!own_device) return own_device.status().copy();
    if (device != *common)
        return fail(error::argument_device, "the model lies on device {}, but the communicator's device is {}", *common,
                    device);
    if (model.settings.hook == weftTrainHookFloat16 || model.settings.hook == weftTrainHookBfloat16)
        return fail(error::argument_config,
                    "config.hook is a built-in one for host memory, but the model lies on device {}", device);
    return train::device_space(device);
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
            WEFT_TRY(read_config(config, model.settings));
            auto found = space_of(model, comm);
            if (!found) return found.take_status();
            space = std::move(*found);
            model.settings.on_device = space->on_device();
            return ok();
        };
        // A rank that fails tells the others, which wait for it.
        Status own = read();
        auto made = train::Ddp::make(std::move(own), std::move(model), std::move(space), comm);
        if (!made) return made.take_status();
        auto handle = std::make_unique<weftTrainDdp>();
        handle->ddp = std::move(*made);
        *ddp = keep_tombstone(std::move(handle));
        return ok();
    });
}

weftResult_t weftTrainDdpDestroy(weftTrainDdp_t ddp) {
    if (!ddp) return weftSuccess;
    std::shared_ptr<train::Ddp> last;  // ends outside the lock
    return guarded_ddp("weftTrainDdpDestroy", ddp, [&](train::Ddp& own) -> Status {
        Status settled = own.settle();
        ddp->magic.store(weftTrainDdp::destroyed, std::memory_order_release);
        std::lock_guard lock(ddp->mutex);
        last.swap(ddp->ddp);
        return settled;
    });
}

weftResult_t weftTrainDdpAbort(weftTrainDdp_t ddp) {
    return guarded([&]() -> Status {
        WEFT_TRY(check_ddp(ddp));
        // weftTrainDdpDestroy waits for the lock, so the object ends there.
        std::lock_guard lock(ddp->mutex);
        if (ddp->ddp) ddp->ddp->abort();
        return ok();
    });
}

weftResult_t weftTrainDdpGetAsyncError(weftTrainDdp_t ddp, weftResult_t* result) {
    return guarded_ddp("weftTrainDdpGetAsyncError", ddp, [&](train::Ddp& own) -> Status {
        if (!result) return fail(error::argument_null, "weftTrainDdpGetAsyncError: result is NULL");
        const Status state = own.state();
        *result = state ? weftSuccess : report(state);
        return ok();
    });
}

weftResult_t weftTrainDdpBegin(weftTrainDdp_t ddp, weftTrainMode_t mode, weftStream_t stream) {
    return guarded_ddp("weftTrainDdpBegin", ddp, [&](train::Ddp& own) -> Status {
        if (mode != weftTrainSynchronize && mode != weftTrainAccumulate)
            return fail(error::argument_value, "weftTrainDdpBegin: mode is {}; it must be a weftTrainMode_t",
                        int(mode));
        WEFT_TRY(check_stream("weftTrainDdpBegin", own, stream));
        return own.begin(mode, stream);
    });
}

weftResult_t weftTrainDdpGetGradient(weftTrainDdp_t ddp, int parameter, void** gradient) {
    return guarded_ddp("weftTrainDdpGetGradient", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetGradient", own, parameter));
        if (!gradient) return fail(error::argument_null, "weftTrainDdpGetGradient: gradient is NULL");
        *gradient = own.gradient(parameter);
        return ok();
    });
}

weftResult_t weftTrainDdpGradientReady(weftTrainDdp_t ddp, int parameter, weftStream_t stream) {
    return guarded_ddp("weftTrainDdpGradientReady", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGradientReady", own, parameter));
        WEFT_TRY(check_stream("weftTrainDdpGradientReady", own, stream));
        return own.ready({&parameter, 1}, stream);
    });
}

weftResult_t weftTrainDdpGradientsReady(weftTrainDdp_t ddp, const int* parameters, size_t count, weftStream_t stream) {
    return guarded_ddp("weftTrainDdpGradientsReady", ddp, [&](train::Ddp& own) -> Status {
        if (!parameters && count > 0)
            return fail(error::argument_null, "weftTrainDdpGradientsReady: parameters is NULL");
        for (size_t i = 0; i < count; ++i) WEFT_TRY(check_parameter("weftTrainDdpGradientsReady", own, parameters[i]));
        WEFT_TRY(check_stream("weftTrainDdpGradientsReady", own, stream));
        return own.ready({parameters, count}, stream);
    });
}

weftResult_t weftTrainDdpFinish(weftTrainDdp_t ddp, weftStream_t stream) {
    return guarded_ddp("weftTrainDdpFinish", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_stream("weftTrainDdpFinish", own, stream));
        return own.finish(stream);
    });
}

weftResult_t weftTrainDdpJoin(weftTrainDdp_t ddp, weftStream_t stream) {
    return guarded_ddp("weftTrainDdpJoin", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_stream("weftTrainDdpJoin", own, stream));
        return own.join(stream);
    });
}

weftResult_t weftTrainDdpGetUsed(weftTrainDdp_t ddp, int parameter, int* used) {
    return guarded_ddp("weftTrainDdpGetUsed", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetUsed", own, parameter));
        if (!used) return fail(error::argument_null, "weftTrainDdpGetUsed: used is NULL");
        *used = own.used(parameter) ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainDdpGetBucket(weftTrainDdp_t ddp, int parameter, int* bucket) {
    return guarded_ddp("weftTrainDdpGetBucket", ddp, [&](train::Ddp& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainDdpGetBucket", own, parameter));
        if (!bucket) return fail(error::argument_null, "weftTrainDdpGetBucket: bucket is NULL");
        *bucket = own.bucket_of(parameter);
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
