// server.cpp: the parameter server of train.h: checks handles and arguments, and calls src/train.
#include <cmath>
#include <cstddef>

#include "src/api/training/handle.hpp"
#include "src/api/training/model_memory.hpp"
#include "src/api/training/structs.hpp"
#include "src/train/server/parameter_server.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainServer : TrainingHandle<weftTrainServer, train::ParameterServer> {
    static constexpr uint64_t living = 0x7466657774737276u, destroyed = 0x7466657774737265u;
    static constexpr const char* name = "server";
    static constexpr const char* maker = "weftTrainServerCreate";
};

namespace {

// The sizes in the first version; later versions only append fields.
constexpr size_t first_server_config_size = offsetof(weftTrainServerConfig_t, timeoutMs) + sizeof(int64_t);
constexpr size_t first_server_stats_size = offsetof(weftTrainServerStats_t, largestLead) + sizeof(uint64_t);

Status read_server_config(const weftTrainServerConfig_t* given, train::ServerRules& rules) {
    weftTrainServerConfig_t config = WEFT_TRAIN_SERVER_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_server_config_size, WEFT_TRAIN_SERVER_CONFIG_MAGIC,
                                "WEFT_TRAIN_SERVER_CONFIG_INITIALIZER", config));
    if (config.servers < 1)
        return fail(error::argument_config, "config.servers is {}; it must be at least 1", config.servers);
    if (config.accepted < 0)
        return fail(error::argument_config, "config.accepted is {}; it must not be negative", config.accepted);
    if (config.accepted > 0 && config.staleness != WEFT_TRAIN_ANY_STALENESS)
        return fail(error::argument_config,
                    "config.accepted is {} and config.staleness is {}: a step of accepted gradients has no other "
                    "bound. Leave config.staleness as it was",
                    config.accepted, config.staleness);
    if (!(config.learningRate >= 0) || std::isinf(config.learningRate))
        return fail(error::argument_config, "config.learningRate is {}; it must be a positive number",
                    config.learningRate);
    if (config.learningRate == 0 && !config.update)
        return fail(error::argument_config, "config.learningRate is 0 and config.update is NULL: set one of them");
    if (config.timeoutMs < 0)
        return fail(error::argument_config, "config.timeoutMs is {}; it must not be negative", config.timeoutMs);
    rules.servers = config.servers;
    rules.staleness = config.staleness;
    rules.accepted = config.accepted;
    rules.learning_rate = config.learningRate;
    rules.timeout_ms = config.timeoutMs;
    rules.update = config.update;
    rules.update_context = config.updateContext;
    return ok();
}

Status check_worker_gradients(const std::vector<train::Tensor>& tensors, int servers, weftComm_t comm) {
    int rank = 0;
    WEFT_TRY(train::called(weftCommUserRank(comm, &rank)));
    for (const train::Tensor& tensor : tensors)
        if (rank >= servers && !tensor.gradient && tensor.facts.count > 0)
            return fail(error::argument_null,
                        "parameter \"{}\" has no memory for its gradient, but this rank is a worker: set its field "
                        "gradient",
                        tensor.name);
    return ok();
}

// A call of workers or of servers only.
Status check_role(const char* function, const train::ParameterServer& own, bool server) {
    if (own.is_server() == server) return ok();
    return fail(error::train_server_order, "{}: this rank is a {}: only a {} calls it", function,
                server ? "worker" : "server", server ? "server" : "worker");
}

}  // namespace

extern "C" {

weftResult_t weftTrainServerCreate(weftTrainServer_t* server, weftComm_t comm, const weftTrainTensor_t* parameters,
                                   size_t parameterCount, const weftTrainServerConfig_t* config) {
    return guarded([&]() -> Status {
        if (server) *server = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainServerCreate"));
        std::vector<train::Tensor> tensors;
        train::ServerRules rules;
        std::unique_ptr<train::MemorySpace> space;
        const auto read = [&]() -> Status {
            if (!server)
                return fail(error::argument_null,
                            "weftTrainServerCreate: server is NULL: pass the address of a weftTrainServer_t");
            WEFT_TRY(read_parameters("weftTrainServerCreate", parameters, parameterCount, tensors));
            WEFT_TRY(read_server_config(config, rules));
            WEFT_TRY(check_worker_gradients(tensors, rules.servers, comm));
            auto found = space_of({&tensors}, comm);
            if (!found) return found.take_status();
            space = std::move(*found);
            return ok();
        };
        Status own = read();
        auto made = train::ParameterServer::make(std::move(own), std::move(tensors), rules, std::move(space), comm);
        if (!made) return made.take_status();
        *server = keep_training<weftTrainServer>(std::move(*made));
        return ok();
    });
}

weftResult_t weftTrainServerDestroy(weftTrainServer_t server) {
    return destroy_training("weftTrainServerDestroy", server);
}

weftResult_t weftTrainServerAbort(weftTrainServer_t server) { return abort_training(server); }

weftResult_t weftTrainServerServe(weftTrainServer_t server) {
    return guarded_training("weftTrainServerServe", server, [&](train::ParameterServer& own) -> Status {
        WEFT_TRY(check_role("weftTrainServerServe", own, true));
        return own.serve();
    });
}

weftResult_t weftTrainServerPush(weftTrainServer_t server, weftStream_t stream) {
    return guarded_training("weftTrainServerPush", server, [&](train::ParameterServer& own) -> Status {
        WEFT_TRY(check_role("weftTrainServerPush", own, false));
        WEFT_TRY(check_stream_of("weftTrainServerPush", own.space(), stream));
        return own.push(stream);
    });
}

weftResult_t weftTrainServerPull(weftTrainServer_t server, weftStream_t stream) {
    return guarded_training("weftTrainServerPull", server, [&](train::ParameterServer& own) -> Status {
        WEFT_TRY(check_role("weftTrainServerPull", own, false));
        WEFT_TRY(check_stream_of("weftTrainServerPull", own.space(), stream));
        return own.pull(stream);
    });
}

weftResult_t weftTrainServerFinish(weftTrainServer_t server) {
    return guarded_training("weftTrainServerFinish", server, [&](train::ParameterServer& own) -> Status {
        WEFT_TRY(check_role("weftTrainServerFinish", own, false));
        return own.finish();
    });
}

weftResult_t weftTrainServerGetOwner(weftTrainServer_t server, int parameter, int* rank) {
    return guarded_training("weftTrainServerGetOwner", server, [&](train::ParameterServer& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainServerGetOwner", own, parameter));
        if (!rank) return fail(error::argument_null, "weftTrainServerGetOwner: rank is NULL");
        *rank = own.owner(parameter);
        return ok();
    });
}

weftResult_t weftTrainServerGetStats(weftTrainServer_t server, weftTrainServerStats_t* stats) {
    return guarded_training("weftTrainServerGetStats", server, [&](train::ParameterServer& own) -> Status {
        const train::ServerCounters counters = own.counters();
        const weftTrainServerStats_t made = {
            sizeof(weftTrainServerStats_t), counters.steps, counters.applied, counters.dropped, own.slowest_clock(),
            counters.largest_lead};
        return write_struct("weftTrainServerGetStats", "stats", made, first_server_stats_size,
                            "WEFT_TRAIN_SERVER_STATS_INITIALIZER", stats);
    });
}
}
