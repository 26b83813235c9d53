// stragglers.cpp: the scores of slow ranks of train.h: checks handles and arguments, and calls src/train.
#include "src/train/stragglers.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "src/api/training/handle.hpp"
#include "src/api/training/structs.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainStragglers : TrainingHandle<weftTrainStragglers, train::Stragglers> {
    static constexpr uint64_t living = 0x7466657774737472u, destroyed = 0x7466657774737465u;
    static constexpr const char* name = "stragglers";
    static constexpr const char* maker = "weftTrainStragglersCreate";
};

namespace {

constexpr size_t first_stragglers_config_size = offsetof(weftTrainStragglersConfig_t, threshold) + sizeof(double);

Status read_stragglers_config(const weftTrainStragglersConfig_t* given, train::StragglerSettings& settings) {
    weftTrainStragglersConfig_t config = WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_stragglers_config_size, WEFT_TRAIN_STRAGGLERS_CONFIG_MAGIC,
                                "WEFT_TRAIN_STRAGGLERS_CONFIG_INITIALIZER", config));
    if (!(config.intervalSeconds > 0) || std::isinf(config.intervalSeconds))
        return fail(error::argument_config, "config.intervalSeconds is {}; it must be a positive number",
                    config.intervalSeconds);
    if (!(config.threshold >= 0 && config.threshold <= 1))
        return fail(error::argument_config, "config.threshold is {}; it must be 0 to 1", config.threshold);
    settings = {config.intervalSeconds, config.intervalSteps, config.threshold};
    return ok();
}

}  // namespace

extern "C" {

weftResult_t weftTrainStragglersCreate(weftTrainStragglers_t* stragglers, weftComm_t comm,
                                       const weftTrainStragglersConfig_t* config) {
    return guarded([&]() -> Status {
        if (stragglers) *stragglers = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainStragglersCreate"));
        train::StragglerSettings settings;
        Status own = read_stragglers_config(config, settings);
        if (own && !stragglers)
            own = fail(error::argument_null,
                       "weftTrainStragglersCreate: stragglers is NULL: pass the address of a weftTrainStragglers_t");
        auto made = train::Stragglers::make(std::move(own), settings, comm);
        if (!made) return made.take_status();
        *stragglers = keep_training<weftTrainStragglers>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainStragglersDestroy(weftTrainStragglers_t stragglers) {
    return destroy_training("weftTrainStragglersDestroy", stragglers);
}

weftResult_t weftTrainStragglersAbort(weftTrainStragglers_t stragglers) { return abort_training(stragglers); }

weftResult_t weftTrainStragglersStep(weftTrainStragglers_t stragglers, double seconds, int* reported) {
    return guarded_training("weftTrainStragglersStep", stragglers, [&](train::Stragglers& own) -> Status {
        bool compared = false;
        Status status = own.step(seconds, compared);
        if (reported) *reported = compared ? 1 : 0;
        return status;
    });
}

weftResult_t weftTrainStragglersReport(weftTrainStragglers_t stragglers) {
    return guarded_training("weftTrainStragglersReport", stragglers,
                            [&](train::Stragglers& own) { return own.report(); });
}

weftResult_t weftTrainStragglersGetScores(weftTrainStragglers_t stragglers, weftTrainStragglerReference_t reference,
                                          double* scores, int count) {
    const char* const function = "weftTrainStragglersGetScores";
    return guarded_training(function, stragglers, [&](train::Stragglers& own) -> Status {
        if (!scores) return fail(error::argument_null, "{}: scores is NULL", function);
        if (reference != weftTrainFastestRank && reference != weftTrainOwnBest)
            return fail(error::argument_value, "{}: reference is {}; it is a weftTrainStragglerReference_t", function,
                        int(reference));
        if (count != own.ranks())
            return fail(error::argument_value, "{}: count is {}; it must be the number of ranks, {}", function, count,
                        own.ranks());
        if (own.times().empty())
            return fail(error::train_iteration, "{}: the ranks were not compared yet: call weftTrainStragglersReport",
                        function);
        const auto found = reference == weftTrainFastestRank ? train::scores_against_fastest(own.times())
                                                             : train::scores_against_own_best(own.times());
        std::copy(found.begin(), found.end(), scores);
        return ok();
    });
}
}
