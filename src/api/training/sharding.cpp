// sharding.cpp: the sharded part of train.h: checks handles and arguments, and calls src/train.
#include <cmath>
#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "src/api/training/boxes.hpp"
#include "src/api/training/handle.hpp"
#include "src/api/training/structs.hpp"
#include "src/api/training/tensors.hpp"
#include "src/comm/facts.hpp"
#include "src/streams/host_stream.hpp"
#include "src/train/sharding/sharded.hpp"
#include "weft/train.h"

using namespace weft::internal;

struct weftTrainShard : TrainingHandle<weftTrainShard, train::Sharded> {
    static constexpr uint64_t living = 0x7466657774736861u, destroyed = 0x7466657774736865u;
    static constexpr const char* name = "shard";
    static constexpr const char* maker = "weftTrainShardCreate";

    // A parameter as weftTrainShardGetBox describes it.
    struct Place {
        std::string name;
        weftDataType_t type;
        std::vector<size_t> shape, offsets, extents;
        bool is_range;
        size_t begin, count;  // elements
    };
    std::vector<Place> places;  // constant
};

namespace {

// The sizes in the first version; later versions only append fields.
constexpr size_t first_unit_size = offsetof(weftTrainUnit_t, reshardRanks) + sizeof(int);
constexpr size_t first_shard_config_size = offsetof(weftTrainShardConfig_t, divisor) + sizeof(double);
constexpr size_t first_piece_size = offsetof(weftTrainPiece_t, count) + sizeof(size_t);
constexpr size_t first_stats_size = offsetof(weftTrainShardStats_t, wholeBytes) + sizeof(size_t);

Status check_unit(const char* function, const train::Sharded& sharded, int unit) {
    if (unit >= 0 && unit < sharded.unit_count()) return ok();
    return fail(error::argument_value, "{}: unit is {}; it must be 0 to {}", function, unit, sharded.unit_count() - 1);
}

Status check_shard_stream(const char* function, const train::Sharded& sharded, weftStream_t stream) {
    if (sharded.on_device() && is_host_stream(stream))
        return fail(error::argument_stream, "{}: the object lies on a device: stream must be a CUDA stream", function);
    if (sharded.on_device()) return sharded.check_stream(function, stream);
    if (!stream) return ok();
    return fail(error::argument_stream, "{}: stream must be NULL, because the object lies in host memory", function);
}

// The elements are one dimension if the caller states no shape.
Result<std::vector<size_t>> read_shape(const weftTrainTensor_t& tensor, size_t number) {
    if (tensor.dims == -1) return std::vector<size_t>{tensor.count};
    if (tensor.dims < 0 || tensor.dims > WEFT_TRAIN_DIMS_MAX)
        return fail(error::argument_value, "parameter {}, \"{}\", has {} dimensions; it must be -1 to {}", number,
                    tensor.name, tensor.dims, WEFT_TRAIN_DIMS_MAX);
    if (!tensor.shape && tensor.dims > 0)
        return fail(error::argument_null, "parameter {}, \"{}\", has {} dimensions, but its shape is NULL", number,
                    tensor.name, tensor.dims);
    std::vector<size_t> shape;
    if (tensor.dims > 0) shape.assign(tensor.shape, tensor.shape + tensor.dims);
    size_t elements = 1;
    for (const size_t length : shape) {
        const bool fits = length == 0 || elements <= elements_most / length;
        elements = fits ? elements * length : SIZE_MAX;
        if (!fits) break;
    }
    if (elements == tensor.count) return shape;
    return fail(error::argument_value, "parameter {}, \"{}\", has {} elements, which its shape does not hold", number,
                tensor.name, tensor.count);
}

Status read_parameter(const weftTrainTensor_t& tensor, size_t number, bool has_values, std::set<std::string>& names,
                      std::vector<train::UnitParameter>& read) {
    WEFT_TRY(check_tensor(tensor, "parameter", number, true, names));
    if (tensor.gradient)
        return fail(error::argument_value,
                    "parameter {}, \"{}\", has a gradient of the caller's: gradients of units lie in their own memory",
                    number, tensor.name);
    if (has_values && !tensor.data && tensor.count > 0)
        return fail(error::argument_null, "parameter {}, \"{}\", has {} elements, but its data is NULL on rank 0",
                    number, tensor.name, tensor.count);
    auto shape = read_shape(tensor, number);
    if (!shape) return shape.take_status();
    const size_t rows = tensor.rows == 0 && tensor.dims > 0 ? shape->front() : tensor.rows;
    if (tensor.dims > 0 && rows != shape->front())
        return fail(error::argument_value, "parameter {}, \"{}\", has {} rows, but its shape begins with {}", number,
                    tensor.name, rows, shape->front());
    read.push_back({tensor.name, tensor.data, {tensor.datatype, tensor.count, rows}, std::move(*shape)});
    return ok();
}

Result<weftTrainUnit_t> read_unit_entry(const weftTrainUnit_t* units, size_t number) {
    auto unit = read_struct(units, number, WEFT_TRAIN_UNIT_INITIALIZER, first_unit_size, fmt::format("unit {}", number),
                            "WEFT_TRAIN_UNIT_INITIALIZER");
    if (!unit) return unit;
    if (!unit->name || !*unit->name)
        return fail(error::argument_null, "unit {} has no name: set its field name", number);
    if (!unit->parameters || unit->parameterCount == 0)
        return fail(error::argument_null, "unit {}, \"{}\", has no parameters: a unit has at least one", number,
                    unit->name);
    if (unit->reshardRanks < 0)
        return fail(error::argument_value, "unit {}, \"{}\": reshardRanks is {}; it must not be negative", number,
                    unit->name, unit->reshardRanks);
    return unit;
}

Status read_units(const weftTrainUnit_t* units, size_t count, bool has_values, train::ShardingPlan& plan) {
    if (!units || count == 0 || count > INT32_MAX)
        return fail(error::argument_value, "weftTrainShardCreate: units is {} and unitCount is {}; it must be 1 to {}",
                    static_cast<const void*>(units), count, INT32_MAX);
    std::set<std::string> names, unit_names;
    size_t number = 0;
    for (size_t i = 0; i < count; ++i) {
        const auto unit = read_unit_entry(units, i);
        if (!unit) return unit.status().copy();
        if (!unit_names.insert(unit->name).second)
            return fail(error::argument_value, "two units have the name \"{}\": names are different", unit->name);
        train::UnitPlan& read = plan.units.emplace_back(train::UnitPlan{unit->name, {}, unit->reshardRanks});
        for (size_t p = 0; p < unit->parameterCount; ++p, ++number) {
            const auto tensor = read_entry(unit->parameters, p, "parameter");
            if (!tensor) return tensor.status().copy();
            WEFT_TRY(read_parameter(*tensor, number, has_values, names, read.parameters));
        }
    }
    if (number > INT32_MAX)
        return fail(error::argument_value, "weftTrainShardCreate: the units have {} parameters; {} are possible",
                    number, INT32_MAX);
    return ok();
}

Result<std::unique_ptr<train::MemorySpace>> shard_space(const train::ShardingPlan& plan, weftComm_t comm) {
    if (!plan.on_device) return train::host_space();
    int device = -1;
    WEFT_TRY(train::called(weftCommCuDevice(comm, &device)));
    return train::device_space(device);
}

Status read_shard_config(const weftTrainShardConfig_t* given, train::ShardingPlan& plan) {
    weftTrainShardConfig_t config = WEFT_TRAIN_SHARD_CONFIG_INITIALIZER;
    WEFT_TRY(read_config_struct(given, first_shard_config_size, WEFT_TRAIN_SHARD_CONFIG_MAGIC,
                                "WEFT_TRAIN_SHARD_CONFIG_INITIALIZER", config));
    if (config.sharding != weftTrainShardFlat && config.sharding != weftTrainShardRows)
        return fail(error::argument_config, "config.sharding is {}; it is a weftTrainSharding_t", int(config.sharding));
    if (config.stage < weftTrainShardOptimizer || config.stage > weftTrainShardParameters)
        return fail(error::argument_config, "config.stage is {}; it is a weftTrainStage_t", int(config.stage));
    if (config.shardRanks < 0)
        return fail(error::argument_config, "config.shardRanks is {}; it must not be negative", config.shardRanks);
    if (!is_switch(config.onDevice))
        return fail(error::argument_config, "config.onDevice is {}; it is 0 or 1", config.onDevice);
    if (!is_switch(config.shardsOnHost))
        return fail(error::argument_config, "config.shardsOnHost is {}; it is 0 or 1", config.shardsOnHost);
    if (!(config.divisor >= 0) || std::isinf(config.divisor))
        return fail(error::argument_config, "config.divisor is {}; it must be a positive number, or 0", config.divisor);
    plan.sharding = config.sharding == weftTrainShardRows ? train::Sharding::rows : train::Sharding::flat;
    plan.shard_ranks = config.shardRanks;
    plan.keeps_wholes = config.stage < weftTrainShardParameters;
    plan.keeps_gradients = config.stage < weftTrainShardGradients;
    plan.divisor = config.divisor;
    plan.on_device = config.onDevice != 0;
    plan.shards_on_host = config.shardsOnHost != 0;
    if (!is_switch(config.keepGradients))
        return fail(error::argument_config, "config.keepGradients is {}; it is 0 or 1", config.keepGradients);
    plan.keeps_gradient_pages = config.keepGradients != 0;
    if (!is_switch(config.overwriteGradients))
        return fail(error::argument_config, "config.overwriteGradients is {}; it is 0 or 1", config.overwriteGradients);
    plan.overwrites_gradients = config.overwriteGradients != 0;
    if (!is_switch(config.poolGradients) || (config.poolGradients && (!config.onDevice || config.keepGradients)))
        return fail(error::argument_config,
                    "config.poolGradients is {}; it is 0, or 1 with config.onDevice and without config.keepGradients",
                    config.poolGradients);
    plan.pools_gradients = config.poolGradients != 0;
    plan.types = {config.parameterType, config.reduceType, config.outputType};
    if (config.gatherBits != 0 && config.gatherBits != 8)
        return fail(error::argument_config, "config.gatherBits is {}; it must be 0 or 8", config.gatherBits);
    if (config.reduceBits != 0 && config.reduceBits != 4 && config.reduceBits != 8)
        return fail(error::argument_config, "config.reduceBits is {}; it must be 0, 4 or 8", config.reduceBits);
    if (config.blockCount < 1 || config.blockCount > 65536)
        return fail(error::argument_config, "config.blockCount is {}; it must be 1 to 65536", config.blockCount);
    plan.quantization = {config.gatherBits, config.reduceBits, config.blockCount};
    return ok();
}

weftTrainShard::Place place_of(const train::UnitParameter& parameter, const train::ParameterShard& part) {
    const std::vector<size_t>& shape = parameter.shape;
    weftTrainShard::Place place = {
        parameter.name, parameter.facts.type, shape,     std::vector<size_t>(shape.size()), shape,
        true,           part.begin,           part.count};
    if (shape.empty() || shape[0] == 0 || parameter.facts.count == 0) return place;
    const size_t row = parameter.facts.count / shape[0];
    place.is_range = part.begin % row != 0 || part.count % row != 0;
    place.offsets[0] = part.begin / row;
    place.extents[0] = part.count / row;
    return place;
}

std::vector<weftTrainShard::Place> places_of(const train::ShardingPlan& plan, const train::Sharded& sharded) {
    std::vector<weftTrainShard::Place> places;
    for (const train::UnitPlan& unit : plan.units)
        for (const train::UnitParameter& parameter : unit.parameters) {
            places.push_back(place_of(parameter, sharded.shard(int(places.size()))));
        }
    return places;
}

}  // namespace

extern "C" {

weftResult_t weftTrainShardCreate(weftTrainShard_t* shard, weftComm_t comm, const weftTrainUnit_t* units,
                                  size_t unitCount, const weftTrainShardConfig_t* config) {
    return guarded([&]() -> Status {
        if (shard) *shard = nullptr;
        WEFT_TRY(check_handle(comm));
        WEFT_TRY(check_no_group("weftTrainShardCreate"));
        int rank = 0;
        WEFT_TRY(train::called(weftCommUserRank(comm, &rank)));
        train::ShardingPlan plan;
        if (const auto communicator = comm->share()) plan.hosts = hosts_of_ranks(*communicator);
        const auto read = [&]() -> Status {
            if (!shard)
                return fail(error::argument_null,
                            "weftTrainShardCreate: shard is NULL: pass the address of a weftTrainShard_t");
            WEFT_TRY(read_units(units, unitCount, rank == 0, plan));
            return read_shard_config(config, plan);
        };
        // A rank that fails tells the others, which wait for it.
        Status own = read();
        std::unique_ptr<train::MemorySpace> space = train::host_space();
        if (own) {
            auto found = shard_space(plan, comm);
            if (found)
                space = std::move(*found);
            else
                own = found.take_status();
        }
        auto made = train::Sharded::make(std::move(own), plan, std::move(space), comm);
        if (!made) return made.take_status();
        auto places = places_of(plan, **made);
        *shard = keep_training<weftTrainShard>(std::move(*made));
        (*shard)->places = std::move(places);
        return ok();
    });
}

weftResult_t weftTrainShardDestroy(weftTrainShard_t shard) { return destroy_training("weftTrainShardDestroy", shard); }

weftResult_t weftTrainShardAbort(weftTrainShard_t shard) { return abort_training(shard); }

weftResult_t weftTrainShardGather(weftTrainShard_t shard, int unit, weftStream_t stream) {
    return guarded_training("weftTrainShardGather", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_unit("weftTrainShardGather", own, unit));
        WEFT_TRY(check_shard_stream("weftTrainShardGather", own, stream));
        return own.gather(unit, stream);
    });
}

weftResult_t weftTrainShardRelease(weftTrainShard_t shard, int unit, weftTrainPass_t pass, weftStream_t stream) {
    return guarded_training("weftTrainShardRelease", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_unit("weftTrainShardRelease", own, unit));
        if (pass != weftTrainForward && pass != weftTrainBackward)
            return fail(error::argument_value, "weftTrainShardRelease: pass is {}; it must be a weftTrainPass_t",
                        int(pass));
        WEFT_TRY(check_shard_stream("weftTrainShardRelease", own, stream));
        return own.release(unit, pass == weftTrainForward, stream);
    });
}

weftResult_t weftTrainShardGetParameter(weftTrainShard_t shard, int parameter, void** values) {
    return guarded_training("weftTrainShardGetParameter", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainShardGetParameter", own, parameter));
        if (!values) return fail(error::argument_null, "weftTrainShardGetParameter: values is NULL");
        auto found = own.parameter(parameter);
        if (!found) return found.take_status();
        *values = *found;
        return ok();
    });
}

weftResult_t weftTrainShardGetGradient(weftTrainShard_t shard, int parameter, void** gradient) {
    return guarded_training("weftTrainShardGetGradient", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainShardGetGradient", own, parameter));
        if (!gradient) return fail(error::argument_null, "weftTrainShardGetGradient: gradient is NULL");
        auto found = own.gradient(parameter);
        if (!found) return found.take_status();
        *gradient = *found;
        return ok();
    });
}

weftResult_t weftTrainShardReduceScatter(weftTrainShard_t shard, int unit, weftTrainMode_t mode, weftStream_t stream) {
    return guarded_training("weftTrainShardReduceScatter", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_unit("weftTrainShardReduceScatter", own, unit));
        if (mode != weftTrainSynchronize && mode != weftTrainAccumulate)
            return fail(error::argument_value, "weftTrainShardReduceScatter: mode is {}; it must be a weftTrainMode_t",
                        int(mode));
        WEFT_TRY(check_shard_stream("weftTrainShardReduceScatter", own, stream));
        return own.reduce_scatter(unit, mode == weftTrainSynchronize, stream);
    });
}

weftResult_t weftTrainShardFinish(weftTrainShard_t shard, weftStream_t stream) {
    return guarded_training("weftTrainShardFinish", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_shard_stream("weftTrainShardFinish", own, stream));
        return own.finish(stream);
    });
}

weftResult_t weftTrainShardGetReduced(weftTrainShard_t shard, int* reduced) {
    return guarded_training("weftTrainShardGetReduced", shard, [&](train::Sharded& own) -> Status {
        if (!reduced) return fail(error::argument_null, "weftTrainShardGetReduced: reduced is NULL");
        *reduced = own.reduced() ? 1 : 0;
        return ok();
    });
}

weftResult_t weftTrainShardZeroGradients(weftTrainShard_t shard) {
    return guarded_training("weftTrainShardZeroGradients", shard,
                            [&](train::Sharded& own) { return own.zero_gradients(); });
}

weftResult_t weftTrainShardGetPiece(weftTrainShard_t shard, int parameter, weftTrainPiece_t* piece) {
    return guarded_training("weftTrainShardGetPiece", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainShardGetPiece", own, parameter));
        const train::ParameterShard found = own.shard(parameter);
        const weftTrainPiece_t made = {sizeof made, found.values, found.gradient, found.begin, found.count};
        return write_struct("weftTrainShardGetPiece", "piece", made, first_piece_size, "WEFT_TRAIN_PIECE_INITIALIZER",
                            piece);
    });
}

weftResult_t weftTrainShardGetBox(weftTrainShard_t shard, int parameter, weftTrainBox_t* box) {
    return guarded_training("weftTrainShardGetBox", shard, [&](train::Sharded& own) -> Status {
        WEFT_TRY(check_parameter("weftTrainShardGetBox", own, parameter));
        const weftTrainShard::Place& place = shard->places[size_t(parameter)];
        weftTrainBox_t made = WEFT_TRAIN_BOX_INITIALIZER;
        made.name = place.name.c_str();
        made.data = own.shard(parameter).values;
        made.datatype = place.type;
        made.dims = int(place.shape.size());
        made.shape = place.shape.data();
        made.isRange = place.is_range ? 1 : 0;
        if (place.is_range) {
            made.begin = place.begin;
            made.count = place.count;
        } else {
            made.offsets = place.offsets.data();
            made.extents = place.extents.data();
        }
        return write_struct("weftTrainShardGetBox", "box", made, first_box_size, "WEFT_TRAIN_BOX_INITIALIZER", box);
    });
}

weftResult_t weftTrainShardGetStats(weftTrainShard_t shard, weftTrainShardStats_t* stats) {
    return guarded_training("weftTrainShardGetStats", shard, [&](train::Sharded& own) -> Status {
        const train::ShardingCounters found = own.counters();
        const weftTrainShardStats_t made = {sizeof made,
                                            found.gathered_elements,
                                            found.reduced_elements,
                                            found.shard_bytes,
                                            found.whole_bytes,
                                            found.gathered.bytes,
                                            found.gathered.remote_bytes,
                                            found.reduced.bytes,
                                            found.reduced.remote_bytes,
                                            found.host_bytes,
                                            found.most_bytes};
        return write_struct("weftTrainShardGetStats", "stats", made, first_stats_size,
                            "WEFT_TRAIN_SHARD_STATS_INITIALIZER", stats);
    });
}
}
