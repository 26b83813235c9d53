// sharding_plan.hpp: the registration of a sharded model, equal on all ranks. Values.
#pragma once
#include <string>
#include <vector>

#include "src/base/result.hpp"
#include "src/train/sharding/quantized_shards.hpp"
#include "src/train/sharding/unit.hpp"
#include "src/train/sharding/unit_layout.hpp"

namespace weft::internal::train {

struct UnitParameter {
    std::string name;
    const void* data = nullptr;  // the first values, which count on rank 0 only
    TensorFacts facts;
    std::vector<size_t> shape = {};  // for boxes of it; its product is facts.count
};

struct UnitPlan {
    std::string name;
    std::vector<UnitParameter> parameters;
    int reshard_ranks = 0;  // after the forward pass: 0: the shard group, 1: the unit is kept
};

// Types in place of the parameters' own, which are float32 then. weftNumTypes: as the type before, in this order.
struct MixedTypes {
    weftDataType_t parameter = weftNumTypes;  // of whole units and their gradients
    weftDataType_t reduction = weftNumTypes;  // of gradients while they are reduced
    weftDataType_t output = weftNumTypes;     // of reduced gradients; weftNumTypes: as the parameters
    bool mixes() const { return parameter != weftNumTypes || reduction != weftNumTypes || output != weftNumTypes; }
};

struct ShardingPlan {
    std::vector<UnitPlan> units;
    Sharding sharding = Sharding::flat;
    int shard_ranks = 0;                                 // of one copy of the model; 0: all ranks
    bool keeps_wholes = false, keeps_gradients = false;  // ZeRO 1: both, ZeRO 2: wholes
    bool on_device = false;
    bool shards_on_host = false;        // of a model on a device
    bool keeps_gradient_pages = false;  // between iterations
    bool pools_gradients = false;       // a device's pool has whole gradients between iterations
    bool overwrites_gradients = false;  // the caller writes every element of a whole gradient
    MixedTypes types;
    double divisor = 0;  // of gradients; 0: the number of ranks
    Quantization quantization;
    std::vector<int> hosts;  // of each rank; empty: all ranks are on one host
};

// One line for each fact that must be equal on all ranks.
std::string described(const ShardingPlan& plan);

// Fails if the types cannot be mixed.
Status check_types(const ShardingPlan& plan);
// Fails if the ranks cannot be divided into the plan's groups.
Status check_groups(const ShardingPlan& plan, int ranks);
// Fails if units of these types cannot be quantised, or blocks of this length not on a device.
Status check_quantization(const ShardingPlan& plan);
// The ranks of a host, if gradients go in two hops: each shard group has as many ranks, more than one, on each of its
// hosts. Otherwise 0.
int hop_ranks(const ShardingPlan& plan, int ranks);
int shard_ranks_of(const ShardingPlan& plan, int ranks);
// Without memory.
std::vector<Unit> units_of(const ShardingPlan& plan, int shard_ranks);
// The sizes of groups that need communicators.
std::vector<int> reshard_sizes(const std::vector<Unit>& units);

}  // namespace weft::internal::train
