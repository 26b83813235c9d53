// local.cpp: the part of train.h with rare communication: checks handles and arguments, and calls src/train.
#include <cmath>
#include <cstddef>

#include "src/api/training/handle.hpp"
#include "src/api/training/model_memory.hpp"
#include "src/api/training/parts.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/local_sgd.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainLocal : TrainingHandle<weftTrainLocal, train::LocalSgd> {
    static constexpr uint64_t living = 0x7466657774636f6cu, destroyed = 0x7466657774636f65u;
    static constexpr const char* name = "local";
    static constexpr const char* maker = "weftTrainLocalCreate";
};

namespace {

// The sizes in the first version; later versions only append fields.
constexpr size_t first_local_config_size = offsetof(weftTrainLocalConfig_t, mix) + sizeof(double);
constexpr size_t first_local_state_size = offsetof(weftTrainLocalState_t, datatype) + sizeof(weftDataType_t);

Status check_outer(const weftTrainLocalConfig_t& config) {
    if (config.warmup != 0)
        return fail(error::argument_config,
                    "config.warmup is {}, but weftTrainDiloco has no warm-up: set it to 0, and create the object when "
                    "the warm-up has ended",
                    config.warmup);
    if (config.fragments < 1)
        return fail(error::argument_config, "config.fragments is {}; it must be at least 1", config.fragments);
    const uint64_t fragments = uint64_t(config.fragments);
    if (config.period % fragments != 0)
        return fail(error::argument_config,
                    "config.period is {}, which is no multiple of the {} fragments: a fragment is reduced each "
                    "period / fragments steps",
                    config.period, fragments);
    if (config.delay >= config.period / fragments)
        return fail(error::argument_config,
                    "config.delay is {}; it must be less than the {} steps from one fragment to the next", config.delay,
                    config.period / fragments);
    if (!(config.learningRate > 0) || std::isinf(config.learningRate))
        return fail(error::argument_config, "config.learningRate is {}; it must be a positive number",
                    config.learningRate);
    if (!(config.momentum >= 0 && config.momentum < 1))
        return fail(error::argument_config, "config.momentum is {}; it must be at least 0 and below 1",
                    config.momentum);
    if (!(config.mix >= 0 && config.mix <= 1))
        return fail(error::argument_config, "config.mix is {}; it must be 0 to 1", config.mix);
    return ok();
}

Status check_average(const weftTrainLocalConfig_t& config) {
    if (config.fragments == 1 && config.delay == 0 && !config.fragmentOf) return ok();
    return fail(
        error::argument_config,
        "config.fragments is {} and config.delay is {}, but weftTrainAverage sends the whole model at once: set "
        "config.method to weftTrainDiloco, or leave them as they were",
        config.fragments, config.delay);
}

Status read_local_config(const weftTrainLocalConfig_t* given, size_t parameters, train::LocalSettings& settings) {
    weftTrainLocalConfig_t config = WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_local_config_size, WEFT_TRAIN_LOCAL_CONFIG_MAGIC,
                                "WEFT_TRAIN_LOCAL_CONFIG_INITIALIZER", config));
    if (config.method != weftTrainAverage && config.method != weftTrainDiloco)
        return fail(error::argument_config, "config.method is {}; it is a weftTrainLocalMethod_t", int(config.method));
    if (config.period == 0)
        return fail(error::argument_config,
                    "config.period is 0: set it to the number of steps from one reduction to the next");
    settings.outer = config.method == weftTrainDiloco;
    WEFT_TRY(settings.outer ? check_outer(config) : check_average(config));
    for (size_t i = 0; config.fragmentOf && i < parameters; ++i) {
        const int fragment = config.fragmentOf[i];
        if (fragment < 0 || fragment >= config.fragments)
            return fail(error::argument_config, "config.fragmentOf[{}] is {}; it must be 0 to {}", i, fragment,
                        config.fragments - 1);
        settings.fragment_of.push_back(fragment);
    }
    settings.warmup = config.warmup;
    settings.period = config.period;
    settings.fragments = config.fragments;
    settings.delay = config.delay;
    settings.learning_rate = config.learningRate;
    settings.momentum = config.momentum;
    settings.mix = config.mix;
    return ok();
}

Status check_copied_array(const char* function, const train::LocalSgd& own, int parameter, int state,
                          const void* values) {
    WEFT_TRY(check_parameter(function, own, parameter));
    if (state < 0 || state > 2)
        return fail(error::argument_value, "{}: state is {}; it must be 0 to 2: anchor, momentum or reduced", function,
                    state);
    if (!values && own.parameter_elements(parameter) > 0)
        return fail(error::argument_null, "{}: values is NULL", function);
    return check_on_host(function, "values", values);
}

}  // namespace

extern "C" {

weftResult_t weftTrainLocalCreate(weftTrainLocal_t* local, weftComm_t comm, const weftTrainTensor_t* parameters,
                                  size_t parameterCount, const weftTrainLocalConfig_t* config) {
    return guarded([&]() -> Status {
        if (local) *local = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainLocalCreate"));
        std::vector<train::Tensor> tensors;
        train::LocalSettings settings;
        std::unique_ptr<train::MemorySpace> space;
        const auto read = [&]() -> Status {
            if (!local)
                return fail(error::argument_null,
                            "weftTrainLocalCreate: local is NULL: pass the address of a weftTrainLocal_t");
            WEFT_TRY(read_parameters("weftTrainLocalCreate", parameters, parameterCount, tensors));
            for (train::Tensor& tensor : tensors) tensor.gradient = nullptr;
            WEFT_TRY(read_local_config(config, parameterCount, settings));
            auto found = space_of({&tensors}, comm);
            if (!found) return found.take_status();
            space = std::move(*found);
            settings.on_device = space->on_device();
            return ok();
        };
        Status own = read();
        if (!own) tensors.clear();
        auto made =
            train::LocalSgd::make(std::move(own), std::move(tensors), std::move(settings), std::move(space), comm);
        if (!made) return made.take_status();
        *local = keep_training<weftTrainLocal>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainLocalDestroy(weftTrainLocal_t local) { return destroy_training("weftTrainLocalDestroy", local); }

weftResult_t weftTrainLocalAbort(weftTrainLocal_t local) { return abort_training(local); }

weftResult_t weftTrainLocalStep(weftTrainLocal_t local, int* changed, weftStream_t stream) {
    return guarded_training("weftTrainLocalStep", local, [&](train::LocalSgd& own) -> Status {
        WEFT_TRY(check_stream_of("weftTrainLocalStep", own.space(), stream));
        bool new_values = false;
        Status status = own.step(new_values, stream);
        if (changed) *changed = new_values ? 1 : 0;
        return status;
    });
}

weftResult_t weftTrainLocalGetMode(weftTrainLocal_t local, weftTrainMode_t* mode) {
    return guarded_training("weftTrainLocalGetMode", local, [&](train::LocalSgd& own) -> Status {
        if (!mode) return fail(error::argument_null, "weftTrainLocalGetMode: mode is NULL");
        *mode = own.mode();
        return ok();
    });
}

weftResult_t weftTrainLocalGetSteps(weftTrainLocal_t local, uint64_t* steps) {
    return guarded_training("weftTrainLocalGetSteps", local, [&](train::LocalSgd& own) -> Status {
        if (!steps) return fail(error::argument_null, "weftTrainLocalGetSteps: steps is NULL");
        *steps = own.steps();
        return ok();
    });
}

weftResult_t weftTrainLocalRestore(weftTrainLocal_t local, uint64_t steps) {
    return guarded_training("weftTrainLocalRestore", local, [&](train::LocalSgd& own) { return own.restore(steps); });
}

weftResult_t weftTrainLocalGetState(weftTrainLocal_t local, int parameter, weftTrainLocalState_t* state) {
    return guarded_training("weftTrainLocalGetState", local, [&](train::LocalSgd& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainLocalGetState", own, parameter));
        const auto found = own.state(parameter);
        if (!found) return found.status().copy();
        weftTrainLocalState_t made = {sizeof(weftTrainLocalState_t),
                                      found->anchor,
                                      found->momentum,
                                      found->reduced,
                                      found->facts.count,
                                      found->facts.type};
        return write_struct("weftTrainLocalGetState", "state", made, first_local_state_size,
                            "WEFT_TRAIN_LOCAL_STATE_INITIALIZER", state);
    });
}

weftResult_t weftTrainLocalReadState(weftTrainLocal_t local, int parameter, int state, void* values) {
    constexpr const char* function = "weftTrainLocalReadState";
    return guarded_training(function, local, [&](train::LocalSgd& own) -> Status {
        WEFT_TRY(check_copied_array(function, own, parameter, state, values));
        return own.read_state(parameter, state, values);
    });
}

weftResult_t weftTrainLocalWriteState(weftTrainLocal_t local, int parameter, int state, const void* values) {
    constexpr const char* function = "weftTrainLocalWriteState";
    return guarded_training(function, local, [&](train::LocalSgd& own) -> Status {
        WEFT_TRY(check_copied_array(function, own, parameter, state, values));
        return own.write_state(parameter, state, values);
    });
}
}
