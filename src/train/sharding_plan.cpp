#include "src/train/sharding_plan.hpp"

#include <algorithm>
#include <set>

#include "src/base/options.hpp"
#include "src/train/agreement.hpp"

namespace weft::internal::train {

std::string described(const ShardingPlan& plan) {
    std::string text = fmt::format(
        "the settings sharding {}, shardRanks {}, keeps units {}, keeps gradients {}, divisor {}, WEFT_CHECK_UNITS "
        "{}\n",
        int(plan.sharding), plan.shard_ranks, int(plan.keeps_wholes), int(plan.keeps_gradients), plan.divisor,
        options().check_units);
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

std::vector<Unit> units_of(const ShardingPlan& plan, int shard_ranks) {
    std::vector<Unit> units;
    for (const UnitPlan& each : plan.units) {
        std::vector<TensorFacts> facts;
        for (const UnitParameter& parameter : each.parameters) facts.push_back(parameter.facts);
        const bool whole_group = each.reshard_ranks == shard_ranks && shard_ranks > 1;
        units.emplace_back(each.name, UnitLayout(std::move(facts), shard_ranks, plan.sharding),
                           whole_group ? 0 : each.reshard_ranks);
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
