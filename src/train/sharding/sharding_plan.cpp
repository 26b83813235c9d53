#include "src/train/sharding/sharding_plan.hpp"

#include <algorithm>
#include <set>

#include "src/base/datatype.hpp"
#include "src/base/options.hpp"
#include "src/train/agreement.hpp"

namespace weft::internal::train {

std::string described(const ShardingPlan& plan) {
    std::string text = fmt::format(
        "the settings sharding {}, shardRanks {}, keeps units {}, keeps gradients {}, divisor {}, onDevice {}, "
        "shardsOnHost {}, keepGradients {}, overwriteGradients {}, poolGradients {}, types {} {} {}, gatherBits {}, "
        "reduceBits {}, "
        "blockCount {}, "
        "WEFT_CHECK_UNITS {}\n",
        int(plan.sharding), plan.shard_ranks, int(plan.keeps_wholes), int(plan.keeps_gradients), plan.divisor,
        int(plan.on_device), int(plan.shards_on_host), int(plan.keeps_gradient_pages), int(plan.overwrites_gradients),
        int(plan.pools_gradients), int(plan.types.parameter), int(plan.types.reduction), int(plan.types.output),
        plan.quantization.gather_bits, plan.quantization.reduce_bits, plan.quantization.block, options().check_units);
    for (size_t u = 0; u < plan.units.size(); ++u) {
        const UnitPlan& unit = plan.units[u];
        std::string name = unit.name;
        std::replace(name.begin(), name.end(), '\n', ' ');  // lines end with it
        text += fmt::format("unit {}, \"{}\", with {} parameters and reshardRanks {}\n", u, name,
                            unit.parameters.size(), unit.reshard_ranks);
        for (size_t p = 0; p < unit.parameters.size(); ++p) {
            const UnitParameter& parameter = unit.parameters[p];
            const std::string kind = fmt::format("unit {}: {} rows of parameter", u, parameter.facts.rows);
            add_line(text, kind.c_str(), p, parameter.name, parameter.facts);
        }
    }
    return text;
}

int shard_ranks_of(const ShardingPlan& plan, int ranks) { return plan.shard_ranks > 0 ? plan.shard_ranks : ranks; }

Status check_groups(const ShardingPlan& plan, int ranks) {
    const int shard_ranks = shard_ranks_of(plan, ranks);
    if (ranks % shard_ranks != 0)
        return fail(error::argument_config, "{} ranks cannot be divided into groups of shardRanks {}", ranks,
                    shard_ranks);
    for (const UnitPlan& unit : plan.units)
        if (unit.reshard_ranks > 0 && shard_ranks % unit.reshard_ranks != 0)
            return fail(error::argument_config,
                        "unit \"{}\": the {} ranks of a shard group cannot be divided into groups of reshardRanks {}",
                        unit.name, shard_ranks, unit.reshard_ranks);
    return ok();
}

namespace {

// The types of a unit's elements in its forms.
struct FormTypes {
    weftDataType_t whole, reduced, gradient;
};

FormTypes form_types(const MixedTypes& types, weftDataType_t own) {
    const auto or_else = [](weftDataType_t type, weftDataType_t other) { return type == weftNumTypes ? other : type; };
    const weftDataType_t whole = or_else(types.parameter, own);
    return {whole, or_else(types.reduction, whole), or_else(types.output, own)};
}

bool convertible(weftDataType_t from, weftDataType_t to) {
    return from == to || from == weftFloat32 || to == weftFloat32;
}

UnitForms forms_of(const std::vector<TensorFacts>& facts, const FormTypes& types, int ranks, Sharding sharding,
                   size_t elements) {
    const auto in_type = [&](weftDataType_t type) {
        std::vector<TensorFacts> others = facts;
        for (TensorFacts& each : others) each.type = type;
        return UnitLayout(std::move(others), ranks, sharding, elements * size_of(type));
    };
    return {in_type(types.whole), in_type(types.reduced), in_type(types.gradient)};
}

}  // namespace

Status check_types(const ShardingPlan& plan) {
    if (!plan.types.mixes()) return ok();
    const FormTypes types = form_types(plan.types, weftFloat32);
    for (const weftDataType_t type : {types.whole, types.reduced, types.gradient})
        if (type != weftFloat32 && type != weftFloat16 && type != weftBfloat16)
            return fail(error::argument_config,
                        "config.parameterType, reduceType and outputType are float32, float16, bfloat16 or "
                        "weftNumTypes; one is {}",
                        int(type));
    if (!convertible(types.whole, types.reduced) || !convertible(types.reduced, types.gradient))
        return fail(error::argument_config,
                    "config.parameterType {}, reduceType {} and outputType {}: of two neighbours that differ one must "
                    "be float32",
                    name_of(types.whole), name_of(types.reduced), name_of(types.gradient));
    for (const UnitPlan& unit : plan.units)
        for (const UnitParameter& parameter : unit.parameters)
            if (parameter.facts.type != weftFloat32)
                return fail(error::argument_config,
                            "parameter \"{}\" has {} elements: with config.parameterType, reduceType or outputType all "
                            "parameters are float32",
                            parameter.name, name_of(parameter.facts.type));
    return ok();
}

Status check_quantization(const ShardingPlan& plan) {
    if (!plan.quantization.any()) return ok();
    if (plan.on_device && plan.quantization.reduce_bits == 4 && plan.quantization.block % 2 != 0)
        return fail(error::argument_config,
                    "config.blockCount is {}: on a device it must be even with config.reduceBits 4",
                    plan.quantization.block);
    for (const UnitPlan& unit : plan.units)
        for (const UnitParameter& parameter : unit.parameters)
            if (const auto type = parameter.facts.type;
                type != weftFloat32 && type != weftFloat16 && type != weftBfloat16)
                return fail(error::argument_config,
                            "parameter \"{}\" has {} elements: with config.gatherBits or reduceBits all parameters are "
                            "float32, float16 or bfloat16",
                            parameter.name, name_of(type));
    return ok();
}

int hop_ranks(const ShardingPlan& plan, int ranks) {
    const int shard_ranks = shard_ranks_of(plan, ranks);
    if (plan.quantization.reduce_bits == 0 || plan.hosts.empty()) return 0;
    const auto first_run =
        std::find_if(plan.hosts.begin(), plan.hosts.end(), [&](int host) { return host != plan.hosts[0]; });
    const int each = int(first_run - plan.hosts.begin());
    if (each <= 1 || each >= shard_ranks || shard_ranks % each != 0) return 0;
    std::set<int> seen;
    for (int rank = 0; rank < ranks; ++rank) {
        const int host = plan.hosts[size_t(rank)];
        if (rank % each == 0 ? !seen.insert(host).second : host != plan.hosts[size_t(rank) - 1]) return 0;
    }
    return each;
}

std::vector<Unit> units_of(const ShardingPlan& plan, int shard_ranks) {
    std::vector<Unit> units;
    for (const UnitPlan& each : plan.units) {
        std::vector<TensorFacts> facts;
        for (const UnitParameter& parameter : each.parameters) facts.push_back(parameter.facts);
        const bool whole_group = each.reshard_ranks == shard_ranks && shard_ranks > 1;
        constexpr size_t alignment = 16;
        // Equal shards in all types: a multiple of the elements whose smallest type fills the alignment.
        const size_t elements = alignment / 2;
        const bool mixes = plan.types.mixes();
        const UnitLayout layout(facts, shard_ranks, plan.sharding, mixes ? elements * size_of(weftFloat32) : alignment);
        UnitForms forms =
            mixes ? forms_of(facts, form_types(plan.types, weftFloat32), shard_ranks, plan.sharding, elements)
                  : UnitForms{layout, layout, layout};
        units.emplace_back(each.name, layout, std::move(forms), whole_group ? 0 : each.reshard_ranks,
                           plan.on_device && plan.shards_on_host);
    }
    return units;
}

std::vector<int> reshard_sizes(const std::vector<Unit>& units) {
    std::set<int> sizes;
    for (const Unit& unit : units)
        if (unit.reshard_ranks > 1) sizes.insert(unit.reshard_ranks);
    return {sizes.begin(), sizes.end()};
}

}  // namespace weft::internal::train
