// compressor.cpp: the compressing hooks of train.h: checks handles and settings, and calls src/train.
#include <cstddef>
#include <cstring>

#include "src/api/training/compressor.hpp"
#include "src/api/training/handle.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/hooks/compressor.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainCompressor : TrainingHandle<weftTrainCompressor, train::Compressor> {
    static constexpr uint64_t living = 0x7466657774637072u, destroyed = 0x7466657774637065u;
    static constexpr const char* name = "compressor";
    static constexpr const char* maker = "weftTrainCompressorCreate";
};

namespace {

// The size in the first version; later versions only append fields.
constexpr size_t first_compressor_config_size = offsetof(weftTrainCompressorConfig_t, float8) + sizeof(weftDataType_t);

Status check_compressor_config(const weftTrainCompressorConfig_t& config) {
    const auto refuse = [](const char* field, auto value, const char* allowed) {
        return fail(error::argument_config, "config.{} is {}; it must be {}", field, value, allowed);
    };
    if (config.method < weftTrainPowerSgd || config.method > weftTrainFloat8)
        return refuse("method", int(config.method), "a weftTrainCompression_t");
    if (config.startIteration < -1) return refuse("startIteration", config.startIteration, "-1 or more");
    if (!is_switch(config.errorFeedback)) return refuse("errorFeedback", config.errorFeedback, "0 or 1");
    if (!is_switch(config.warmStart)) return refuse("warmStart", config.warmStart, "0 or 1");
    if (config.rank < 1 || config.rank > 1024) return refuse("rank", config.rank, "1 to 1024");
    if (!(config.leastRate > 0)) return refuse("leastRate", config.leastRate, "above 0");
    if (!(config.density > 0 && config.density <= 1)) return refuse("density", config.density, "above 0 and up to 1");
    if (config.blockCount < 1 || config.blockCount > 65536)
        return refuse("blockCount", config.blockCount, "1 to 65536");
    if (!(config.momentum >= 0 && config.momentum < 1))
        return refuse("momentum", config.momentum, "0 or more, and below 1");
    if (!is_switch(config.layerScales)) return refuse("layerScales", config.layerScales, "0 or 1");
    if (config.layerScales == 1 && (config.method != weftTrainOneBit || config.momentum == 0))
        return refuse("layerScales", config.layerScales, "0, except for method OneBit with a momentum");
    if (config.float8 != weftFloat8e4m3 && config.float8 != weftFloat8e5m2)
        return refuse("float8", int(config.float8), "weftFloat8e4m3 or weftFloat8e5m2");
    return ok();
}

Result<train::CompressorSettings> read_compressor_config(const weftTrainCompressorConfig_t* given) {
    if (!given) return fail(error::argument_null, "weftTrainCompressorCreate: config is NULL");
    weftTrainCompressorConfig_t config = WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_compressor_config_size, WEFT_TRAIN_COMPRESSOR_CONFIG_MAGIC,
                                "WEFT_TRAIN_COMPRESSOR_CONFIG_INITIALIZER", config));
    WEFT_TRY(check_compressor_config(config));
    // PyTorch's default: early gradients change too much for few numbers.
    const bool starts_late = config.method == weftTrainPowerSgd || config.method == weftTrainOneBit;
    train::CompressorSettings settings;
    settings.method = config.method;
    settings.error_feedback = config.errorFeedback == 1;
    settings.start_iteration = config.startIteration >= 0 ? uint64_t(config.startIteration) : starts_late ? 1000 : 0;
    settings.rank = size_t(config.rank);
    settings.least_rate = config.leastRate;
    settings.warm_start = config.warmStart == 1;
    settings.seed = config.seed;
    settings.density = config.density;
    settings.block = config.blockCount;
    settings.momentum = config.momentum;
    settings.float8 = config.float8;
    settings.layer_scales = config.layerScales == 1;
    return settings;
}

}  // namespace

Result<std::string> weft::internal::compressor_settings(void* compressor,
                                                        std::span<const train::TensorFacts> parameters) {
    auto* const handle = static_cast<weftTrainCompressor_t>(compressor);
    WEFT_TRY(check_training(handle));
    std::lock_guard lock(handle->mutex);
    if (!handle->object) return check_training(handle);
    WEFT_TRY(handle->object->check_free(nullptr));
    WEFT_TRY(handle->object->check_model(parameters));
    return train::described(handle->object->settings());
}

Status weft::internal::prepare_compressor(void* compressor, int device) {
    auto* const handle = static_cast<weftTrainCompressor_t>(compressor);
    WEFT_TRY(check_training(handle));
    std::lock_guard lock(handle->mutex);
    return handle->object ? handle->object->prepare(device) : check_training(handle);
}

Status weft::internal::serve_by_compressor(void* compressor, const std::shared_ptr<const char>& life,
                                           std::span<const train::TensorFacts> parameters) {
    auto* const handle = static_cast<weftTrainCompressor_t>(compressor);
    WEFT_TRY(check_training(handle));
    std::lock_guard lock(handle->mutex);
    if (!handle->object) return check_training(handle);
    WEFT_TRY(handle->object->check_free(life));
    handle->object->serve(life, parameters);
    return ok();
}

Status weft::internal::check_one_bit(weftTrainCompressor_t compressor, double momentum) {
    WEFT_TRY(check_training(compressor));
    std::lock_guard lock(compressor->mutex);
    if (!compressor->object) return check_training(compressor);
    const train::CompressorSettings& settings = compressor->object->settings();
    if (settings.layer_scales && settings.momentum == momentum) return ok();
    return fail(error::argument_config,
                "config.compressor must be of method OneBit with layerScales 1 and momentum {}, which is config.beta1",
                momentum);
}

extern "C" {

weftResult_t weftTrainCompressorCreate(weftTrainCompressor_t* compressor, const weftTrainCompressorConfig_t* config) {
    return guarded([&]() -> Status {
        if (!compressor)
            return fail(error::argument_null,
                        "weftTrainCompressorCreate: compressor is NULL: pass the address of a weftTrainCompressor_t");
        *compressor = nullptr;
        auto settings = read_compressor_config(config);
        if (!settings) return settings.take_status();
        *compressor = keep_training<weftTrainCompressor>(std::make_shared<train::Compressor>(*settings));
        return ok();
    });
}

weftResult_t weftTrainCompressorDestroy(weftTrainCompressor_t compressor) {
    return destroy_training("weftTrainCompressorDestroy", compressor);
}

weftResult_t weftTrainHookCompress(const weftTrainBucket_t* bucket, void* context) {
    return guarded_training("weftTrainHookCompress", static_cast<weftTrainCompressor_t>(context),
                            [&](train::Compressor& own) -> Status {
                                auto owner = train::owner_of(bucket);
                                return owner ? own.reduce(**owner, *bucket) : owner.take_status();
                            });
}

weftResult_t weftTrainCompressorGetCompressed(weftTrainCompressor_t compressor, int* compressed) {
    return guarded_training("weftTrainCompressorGetCompressed", compressor, [&](train::Compressor& own) -> Status {
        if (!compressed) return fail(error::argument_null, "weftTrainCompressorGetCompressed: compressed is NULL");
        *compressed = own.compressed() ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainCompressorSave(weftTrainCompressor_t compressor, void* state, size_t* bytes) {
    return guarded_training("weftTrainCompressorSave", compressor, [&](train::Compressor& own) -> Status {
        if (!bytes) return fail(error::argument_null, "weftTrainCompressorSave: bytes is NULL");
        const size_t needed = own.saved_bytes(), given = std::exchange(*bytes, needed);
        if (!state) return ok();
        if (given < needed)
            return fail(error::argument_value, "weftTrainCompressorSave: the state has {} bytes, but bytes is {}",
                        needed, given);
        const auto saved = own.saved();
        if (!saved) return saved.status().copy();
        memcpy(state, saved->data(), saved->size());
        return ok();
    });
}

weftResult_t weftTrainCompressorLoad(weftTrainCompressor_t compressor, const void* state, size_t bytes) {
    return guarded_training("weftTrainCompressorLoad", compressor, [&](train::Compressor& own) -> Status {
        if (!state) return fail(error::argument_null, "weftTrainCompressorLoad: state is NULL");
        return own.load({static_cast<const std::byte*>(state), bytes});
    });
}
}
