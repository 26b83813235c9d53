// norms.cpp: the norms and the loss scale of train.h: checks handles and arguments, and calls src/train.
#include <cmath>
#include <cstddef>
#include <span>

#include "src/api/training/handle.hpp"
#include "src/api/training/parts.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/optimizer/gradient_norms.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainScaler : TrainingHandle<weftTrainScaler, train::Scaler> {
    static constexpr uint64_t living = 0x7466657774736361u, destroyed = 0x7466657774736365u;
    static constexpr const char* name = "scaler";
    static constexpr const char* maker = "weftTrainScalerCreate";
};

namespace {

constexpr size_t first_scaler_size = offsetof(weftTrainScalerConfig_t, leastScale) + sizeof(double);

Status check_scaling(const weftTrainScalerConfig_t& config) {
    const auto check = [](const char* name, double value, bool right, const char* rule) -> Status {
        if (right) return ok();
        return fail(error::argument_config, "config.{} is {}; it must be {}", name, value, rule);
    };
    WEFT_TRY(check("leastScale", config.leastScale, config.leastScale > 0, "positive"));
    WEFT_TRY(check("scale", config.scale, config.scale >= config.leastScale && std::isfinite(float(config.scale)),
                   "at least config.leastScale, and a float32 number"));
    WEFT_TRY(check("growthFactor", config.growthFactor, config.growthFactor > 1 && std::isfinite(config.growthFactor),
                   "above 1"));
    WEFT_TRY(check("backoffFactor", config.backoffFactor, config.backoffFactor > 0 && config.backoffFactor < 1,
                   "above 0 and below 1"));
    return check("growthInterval", config.growthInterval, config.growthInterval > 0, "positive");
}

// A float16 number cannot hold what the scale was for. All ranks refuse, because their parts have the same types.
Status check_divisible(const char* function, std::span<const train::ModelPart> parts) {
    for (const train::ModelPart& part : parts)
        if (part.gradient_type == weftFloat16)
            return fail(error::argument_datatype,
                        "{}: the gradient of \"{}\" has datatype float16, which would lose small numbers if it were "
                        "divided: pass divide 0, and 1 / scale as gradientScale of weftTrainOptimizerStep",
                        function, part.name);
    return ok();
}

}  // namespace

extern "C" {

weftResult_t weftTrainGradientNorm(const weftTrainPart_t* parts, size_t partCount, const weftComm_t* axes,
                                   size_t axisCount, double p, double* norm, weftStream_t stream) {
    constexpr const char* function = "weftTrainGradientNorm";
    return guarded([&]() -> Status {
        if (!norm) return fail(error::argument_null, "{}: norm is NULL", function);
        WEFT_TRY(check_no_group(function));
        WEFT_TRY(check_number(function, "p", p, p > 0, "positive"));
        auto read_comms = read_axes(function, axes, axisCount);
        if (!read_comms) return read_comms.take_status();
        auto read = read_parts(function, parts, partCount, axisCount, false);
        if (!read) return read.take_status();
        auto worker = worker_of(function, *read);
        if (!worker) return worker.take_status();
        WEFT_TRY(check_stream_of(function, **worker, stream));
        auto found = train::gradient_norm(**worker, *read, *read_comms, p, stream);
        if (!found) return found.take_status();
        *norm = *found;
        return ok();
    });
}

weftResult_t weftTrainClipGradients(const weftTrainPart_t* parts, size_t partCount, double norm, double maxNorm,
                                    int errorIfNonfinite, weftStream_t stream) {
    constexpr const char* function = "weftTrainClipGradients";
    return guarded([&]() -> Status {
        WEFT_TRY(check_number(function, "norm", norm, !(norm < 0), "the norm of weftTrainGradientNorm"));
        WEFT_TRY(check_number(function, "maxNorm", maxNorm, maxNorm >= 0, "not negative"));
        WEFT_TRY(check_switch(function, "errorIfNonfinite", errorIfNonfinite));
        auto read = read_parts(function, parts, partCount, 32, false);
        if (!read) return read.take_status();
        if (errorIfNonfinite && !std::isfinite(norm))
            return fail(error::train_norm,
                        "{}: the norm is {}, so the gradients cannot be clipped: skip this step, or pass "
                        "errorIfNonfinite 0",
                        function, norm);
        auto worker = worker_of(function, *read);
        if (!worker) return worker.take_status();
        WEFT_TRY(check_stream_of(function, **worker, stream));
        const double coefficient = train::clip_coefficient(norm, maxNorm);
        return coefficient == 1 ? ok() : train::scale_gradients(**worker, *read, coefficient, stream);
    });
}

weftResult_t weftTrainScalerCreate(weftTrainScaler_t* scaler, const weftComm_t* axes, size_t axisCount,
                                   const weftTrainScalerConfig_t* given) {
    constexpr const char* function = "weftTrainScalerCreate";
    return guarded([&]() -> Status {
        if (!scaler)
            return fail(error::argument_null, "{}: scaler is NULL: pass the address of a weftTrainScaler_t", function);
        *scaler = nullptr;
        weftTrainScalerConfig_t config = WEFT_TRAIN_SCALER_CONFIG_INITIALIZER;
        WEFT_TRY(read_config_struct(given, first_scaler_size, WEFT_TRAIN_SCALER_CONFIG_MAGIC,
                                    "WEFT_TRAIN_SCALER_CONFIG_INITIALIZER", config));
        WEFT_TRY(check_scaling(config));
        auto read_comms = read_axes(function, axes, axisCount);
        if (!read_comms) return read_comms.take_status();
        const train::LossScale::Rule rule{config.growthFactor, config.backoffFactor, config.growthInterval,
                                          config.leastScale};
        *scaler = keep_training<weftTrainScaler>(std::make_shared<train::Scaler>(
            train::Scaler{train::LossScale(config.scale, rule), std::move(*read_comms)}));
        return ok();
    });
}

weftResult_t weftTrainScalerDestroy(weftTrainScaler_t scaler) {
    return destroy_training("weftTrainScalerDestroy", scaler);
}

weftResult_t weftTrainScalerUnscale(weftTrainScaler_t scaler, const weftTrainPart_t* parts, size_t partCount,
                                    int divide, int* found, weftStream_t stream) {
    constexpr const char* function = "weftTrainScalerUnscale";
    return guarded_training(function, scaler, [&](train::Scaler& own) -> Status {
        if (!found) return fail(error::argument_null, "{}: found is NULL", function);
        WEFT_TRY(check_switch(function, "divide", divide));
        auto read = read_parts(function, parts, partCount, size_t(own.axes.count()), false);
        if (!read) return read.take_status();
        if (divide) WEFT_TRY(check_divisible(function, *read));
        auto worker = worker_of(function, *read);
        if (!worker) return worker.take_status();
        WEFT_TRY(check_stream_of(function, **worker, stream));
        auto finite = train::gradients_finite(**worker, *read, stream);
        if (!finite) return finite.take_status();
        auto any = own.axes.any(!*finite);
        if (!any) return any.take_status();
        own.scale.found(*any);
        *found = *any ? 1 : 0;
        return divide ? train::scale_gradients(**worker, *read, 1 / own.scale.scale(), stream) : ok();
    });
}

weftResult_t weftTrainScalerUpdate(weftTrainScaler_t scaler) {
    return guarded_training("weftTrainScalerUpdate", scaler, [&](train::Scaler& own) { return own.scale.update(); });
}

weftResult_t weftTrainScalerGetState(weftTrainScaler_t scaler, double* scale, int* goodSteps) {
    return guarded_training("weftTrainScalerGetState", scaler, [&](train::Scaler& own) -> Status {
        if (scale) *scale = own.scale.scale();
        if (goodSteps) *goodSteps = own.scale.good_steps();
        return ok();
    });
}

weftResult_t weftTrainScalerSetState(weftTrainScaler_t scaler, double scale, int goodSteps) {
    constexpr const char* function = "weftTrainScalerSetState";
    return guarded_training(function, scaler, [&](train::Scaler& own) -> Status {
        WEFT_TRY(check_number(function, "scale", scale, scale > 0 && std::isfinite(float(scale)),
                              "positive, and a float32 number"));
        WEFT_TRY(check_number(function, "goodSteps", goodSteps, goodSteps >= 0, "not negative"));
        own.scale.restore(scale, goodSteps);
        return ok();
    });
}
}
