// optimizer.cpp: the optimizers of train.h: checks handles and arguments, and calls src/train.
#include <cmath>
#include <cstddef>

#include "src/api/training/compressor.hpp"
#include "src/api/training/handle.hpp"
#include "src/api/training/parts.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/optimizer/optimizer.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainOptimizer : TrainingHandle<weftTrainOptimizer, train::Optimizer> {
    static constexpr uint64_t living = 0x74666577746f7074u, destroyed = 0x74666577746f7065u;
    static constexpr const char* name = "optimizer";
    static constexpr const char* maker = "weftTrainOptimizerCreate";
};

namespace {

constexpr size_t first_optimizer_size = offsetof(weftTrainOptimizerConfig_t, shard) + sizeof(weftTrainShard_t);

Status check_rule(const weftTrainOptimizerConfig_t& config) {
    const auto check = [](const char* name, double value, bool right, const char* rule) -> Status {
        if (right) return ok();
        return fail(error::argument_config, "config.{} is {}; it must be {}", name, value, rule);
    };
    const auto share = [&](const char* name, double value) {
        return check(name, value, value >= 0 && value < 1, "at least 0 and below 1");
    };
    const auto positive = [&](const char* name, double value) {
        return check(name, value, value >= 0 && std::isfinite(value), "a number that is not negative");
    };
    if (config.algorithm < weftTrainSgd || config.algorithm > weftTrainOneBitLamb)
        return fail(error::argument_config, "config.algorithm is {}; it is a weftTrainAlgorithm_t",
                    int(config.algorithm));
    WEFT_TRY(positive("momentum", config.momentum));
    WEFT_TRY(check("dampening", config.dampening, std::isfinite(config.dampening), "a number"));
    WEFT_TRY(check("nesterov", config.nesterov, is_switch(config.nesterov), "0 or 1"));
    WEFT_TRY(share("beta1", config.beta1));
    WEFT_TRY(check("biasCorrection", config.biasCorrection, is_switch(config.biasCorrection), "0 or 1"));
    if (config.beta2 == 1 && config.biasCorrection)
        return fail(error::argument_config,
                    "config.beta2 is 1, which keeps the second moment as it is: set config.biasCorrection to 0");
    WEFT_TRY(check("beta2", config.beta2, config.beta2 >= 0 && config.beta2 <= 1, "at least 0 and at most 1"));
    WEFT_TRY(positive("epsilon", config.epsilon));
    WEFT_TRY(positive("weightDecay", config.weightDecay));
    WEFT_TRY(positive("trust", config.trust));
    if (config.nesterov && (config.momentum == 0 || config.dampening != 0))
        return fail(error::argument_config, "config.nesterov needs a momentum and no dampening, but they are {} and {}",
                    config.momentum, config.dampening);
    return ok();
}

Result<train::OffloadRule> read_offload(const weftTrainOptimizerConfig_t& config) {
    constexpr size_t most_chunk = size_t(1) << 26;  // a transfer stays far below 4 GiB
    if (!config.offloadFolder) return train::OffloadRule{};
    if (!*config.offloadFolder) return fail(error::argument_config, "config.offloadFolder is empty; name a folder");
    if (!is_switch(config.offloadValues))
        return fail(error::argument_config, "config.offloadValues is {}; it must be 0 or 1", config.offloadValues);
    if (config.offloadChunk > most_chunk)
        return fail(error::argument_config, "config.offloadChunk is {}; it must be 0 to {}", config.offloadChunk,
                    most_chunk);
    if (config.offloadBuffers < 1 || config.offloadBuffers > 64)
        return fail(error::argument_config, "config.offloadBuffers is {}; it must be 1 to 64", config.offloadBuffers);
    if (config.offloadEngine < weftTrainOffloadAny || config.offloadEngine > weftTrainOffloadThreads)
        return fail(error::argument_config, "config.offloadEngine is {}; it is a weftTrainOffloadEngine_t",
                    int(config.offloadEngine));
    return train::OffloadRule{config.offloadFolder, config.offloadValues == 1, config.offloadChunk,
                              config.offloadBuffers, train::OffloadRule::Engine(config.offloadEngine)};
}

Status check_one_bit_lamb(const weftTrainOptimizerConfig_t& config) {
    if (config.algorithm != weftTrainOneBitLamb) return ok();
    if (config.biasCorrection)
        return fail(error::argument_config, "config.biasCorrection is 1; it must be 0 for weftTrainOneBitLamb");
    if (!(config.leastTrust > 0 && config.leastTrust <= config.mostTrust && std::isfinite(config.mostTrust)) ||
        !(config.leastFactor > 0 && config.leastFactor <= config.mostFactor && std::isfinite(config.mostFactor)))
        return fail(
            error::argument_config,
            "config.leastTrust {} and mostTrust {}, leastFactor {} and mostFactor {}: they must be above 0 and in "
            "this order",
            config.leastTrust, config.mostTrust, config.leastFactor, config.mostFactor);
    if (!(config.trustMean >= 0 && config.trustMean < 1) || !(config.factorChange > 0 && config.factorChange < 1))
        return fail(error::argument_config,
                    "config.trustMean is {} and factorChange {}; they must be below 1, and factorChange above 0",
                    config.trustMean, config.factorChange);
    if (config.offloadFolder)
        return fail(error::argument_config,
                    "config.offloadFolder is set; weftTrainOneBitLamb keeps its moments in memory: leave it NULL");
    return check_one_bit(config.compressor, config.beta1);
}

Status check_one_bit_parts(const char* function, const weftTrainOptimizerConfig_t& config,
                           const std::vector<train::ModelPart>& parts) {
    if (config.algorithm != weftTrainOneBitLamb) return ok();
    for (const train::ModelPart& part : parts)
        if (part.axes != 0)
            return fail(error::argument_config,
                        "{}: part \"{}\" is sharded over axes; weftTrainOneBitLamb serves whole parameters", function,
                        part.name);
    return ok();
}

using MadeOptimizer = Result<std::shared_ptr<train::Optimizer>>;
MadeOptimizer make_optimizer(const char* function, const weftTrainPart_t* parts, size_t part_count,
                             const train::Axes& axes, const weftTrainOptimizerConfig_t& config) {
    WEFT_TRY(check_rule(config));
    WEFT_TRY(check_one_bit_lamb(config));
    auto offload = read_offload(config);
    if (!offload) return offload.take_status();
    if (part_count == 0) return fail(error::argument_value, "{}: partCount is 0; it must be at least 1", function);
    auto read = read_parts(function, parts, part_count, size_t(axes.count()), true);
    if (!read) return read.take_status();
    train::OptimizerRule rule{config.algorithm,   config.momentum, config.dampening, config.nesterov == 1,
                              config.beta1,       config.beta2,    config.epsilon,   config.weightDecay,
                              config.trust,       config.ddp,      config.shard,     config.biasCorrection == 1,
                              std::move(*offload)};
    rule.compressor = config.compressor;
    rule.trust_rule = {config.leastTrust,  config.mostTrust,  config.trustMean,
                       config.leastFactor, config.mostFactor, config.factorChange};
    auto worker = worker_of(function, *read);
    if (!worker) return worker.take_status();
    WEFT_TRY(check_one_bit_parts(function, config, *read));
    if (config.offloadFolder && (*worker)->device() >= 0)
        return fail(error::argument_device,
                    "{}: config.offloadFolder is for parts in host memory, and these lie on device {}", function,
                    (*worker)->device());
    return train::Optimizer::make(rule, std::move(*read), axes, std::move(*worker));
}

Status check_part(const char* function, const train::Optimizer& own, int part) {
    if (part >= 0 && part < own.part_count()) return ok();
    return fail(error::argument_value, "{}: part is {}; it must be 0 to {}", function, part, own.part_count() - 1);
}

Status check_trust(const char* function, const train::Optimizer& own, int part) {
    WEFT_TRY(check_part(function, own, part));
    if (own.has_trust()) return ok();
    return fail(error::argument_value, "{}: the algorithm is not weftTrainOneBitLamb", function);
}

Status check_state(const char* function, const train::Optimizer& own, int state) {
    const int states = own.state_count();
    if (state >= 0 && state < states) return ok();
    return fail(error::argument_value, "{}: state is {}, but the algorithm has {} for each part", function, state,
                states);
}

Status check_copied_state(const char* function, const train::Optimizer& own, int part, int state, const float* values) {
    WEFT_TRY(check_part(function, own, part));
    WEFT_TRY(check_state(function, own, state));
    if (values || own.part_elements(part) == 0) return check_on_host(function, "values", values);
    return fail(error::argument_null, "{}: values is NULL", function);
}

}  // namespace

extern "C" {

weftResult_t weftTrainOptimizerCreate(weftTrainOptimizer_t* optimizer, const weftTrainPart_t* parts, size_t partCount,
                                      const weftComm_t* axes, size_t axisCount,
                                      const weftTrainOptimizerConfig_t* given) {
    return guarded([&]() -> Status {
        constexpr const char* function = "weftTrainOptimizerCreate";
        if (!optimizer)
            return fail(error::argument_null, "{}: optimizer is NULL: pass the address of a weftTrainOptimizer_t",
                        function);
        *optimizer = nullptr;
        weftTrainOptimizerConfig_t config = WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER;
        WEFT_TRY(read_config_struct(given, first_optimizer_size, WEFT_TRAIN_OPTIMIZER_CONFIG_MAGIC,
                                    "WEFT_TRAIN_OPTIMIZER_CONFIG_INITIALIZER", config));
        auto read = read_axes(function, axes, axisCount);
        if (!read) return read.take_status();
        auto made = make_optimizer(function, parts, partCount, *read, config);
        if (config.offloadFolder) WEFT_TRY(read->agree(made.status().copy()));
        if (!made) return made.take_status();
        *optimizer = keep_training<weftTrainOptimizer>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainOptimizerDestroy(weftTrainOptimizer_t optimizer) {
    return destroy_training("weftTrainOptimizerDestroy", optimizer);
}

weftResult_t weftTrainOptimizerSetGradient(weftTrainOptimizer_t optimizer, int part, void* gradient) {
    constexpr const char* function = "weftTrainOptimizerSetGradient";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_part(function, own, part));
        auto device = train::device_of(gradient);
        if (!device) return device.take_status();
        if (gradient && *device != own.worker().device())
            return fail(error::argument_device, "{}: the gradient lies in another memory than the parts", function);
        own.set_gradient(part, gradient);
        return ok();
    });
}

weftResult_t weftTrainOptimizerStep(weftTrainOptimizer_t optimizer, double learningRate, double gradientScale, int skip,
                                    weftStream_t stream) {
    constexpr const char* function = "weftTrainOptimizerStep";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_number(function, "learningRate", learningRate, learningRate >= 0 && std::isfinite(learningRate),
                              "a number that is not negative"));
        WEFT_TRY(check_switch(function, "skip", skip));
        WEFT_TRY(check_stream_of(function, own.worker(), stream));
        WEFT_TRY(own.ready());
        if (skip) return ok();
        WEFT_TRY(check_number(function, "gradientScale", gradientScale, std::isfinite(gradientScale),
                              "finite: skip the step if gradients are infinite or NaN"));
        return own.step(learningRate, gradientScale, stream);
    });
}

weftResult_t weftTrainOptimizerGetStateCount(weftTrainOptimizer_t optimizer, int* states) {
    return guarded_training("weftTrainOptimizerGetStateCount", optimizer, [&](train::Optimizer& own) -> Status {
        if (!states) return fail(error::argument_null, "weftTrainOptimizerGetStateCount: states is NULL");
        *states = own.state_count();
        return ok();
    });
}

weftResult_t weftTrainOptimizerGetState(weftTrainOptimizer_t optimizer, int part, int state, const char** name,
                                        float** values) {
    constexpr const char* function = "weftTrainOptimizerGetState";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_part(function, own, part));
        WEFT_TRY(check_state(function, own, state));
        if (!name) return fail(error::argument_null, "{}: name is NULL", function);
        if (values && own.offloads())
            return fail(error::train_offload_state,
                        "{}: the states lie in a file, and have no address: call weftTrainOptimizerReadState",
                        function);
        *name = own.state_name(state);
        if (values) *values = own.state(part, state);
        return ok();
    });
}

weftResult_t weftTrainOptimizerGetTrust(weftTrainOptimizer_t optimizer, int part, double* trust, double* factor) {
    constexpr const char* function = "weftTrainOptimizerGetTrust";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_trust(function, own, part));
        if (!trust || !factor)
            return fail(error::argument_null, "{}: {} is NULL", function, trust ? "factor" : "trust");
        *trust = own.trust(part).mean;
        *factor = own.trust(part).factor;
        return ok();
    });
}

weftResult_t weftTrainOptimizerSetTrust(weftTrainOptimizer_t optimizer, int part, double trust, double factor) {
    constexpr const char* function = "weftTrainOptimizerSetTrust";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_trust(function, own, part));
        WEFT_TRY(check_number(function, "trust", trust, trust >= 0 && std::isfinite(trust), "a number from 0"));
        WEFT_TRY(check_number(function, "factor", factor, factor >= 0 && std::isfinite(factor), "a number from 0"));
        own.trust(part) = {trust, factor};
        return ok();
    });
}

weftResult_t weftTrainOptimizerReadState(weftTrainOptimizer_t optimizer, int part, int state, float* values) {
    constexpr const char* function = "weftTrainOptimizerReadState";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_copied_state(function, own, part, state, values));
        return own.read_state(part, state, values);
    });
}

weftResult_t weftTrainOptimizerWriteState(weftTrainOptimizer_t optimizer, int part, int state, const float* values) {
    constexpr const char* function = "weftTrainOptimizerWriteState";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_copied_state(function, own, part, state, values));
        return own.write_state(part, state, values);
    });
}

weftResult_t weftTrainOptimizerGetSteps(weftTrainOptimizer_t optimizer, int part, uint64_t* steps) {
    constexpr const char* function = "weftTrainOptimizerGetSteps";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_part(function, own, part));
        if (!steps) return fail(error::argument_null, "{}: steps is NULL", function);
        *steps = own.steps(part);
        return ok();
    });
}

weftResult_t weftTrainOptimizerSetSteps(weftTrainOptimizer_t optimizer, int part, uint64_t steps) {
    constexpr const char* function = "weftTrainOptimizerSetSteps";
    return guarded_training(function, optimizer, [&](train::Optimizer& own) -> Status {
        WEFT_TRY(check_part(function, own, part));
        own.set_steps(part, steps);
        return ok();
    });
}
}
