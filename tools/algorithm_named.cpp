#include "tools/algorithm_named.hpp"

#include "src/registry.hpp"

namespace weft::tools {

Result<const Algorithm*> algorithm_named(const std::string& algorithm, const std::string& collective) {
    const auto found = collective_named(collective);
    std::string names;
    if (!found) {
        for (const Collective each : all_collectives)
            names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
        return fail(weftInvalidArgument, "there is no collective `{}`; there are {}", collective, names);
    }
    if (const Algorithm* row = registry::find_algorithm(algorithm, *found)) return row;
    for (const Algorithm& each : registry::algorithms())
        if (each.collective == *found) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
    return fail(weftInvalidArgument, "there is no algorithm `{}` for {}; there are {}", algorithm, collective, names);
}

}  // namespace weft::tools
