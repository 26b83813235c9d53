#include "tools/algorithm_named.hpp"

#include <cctype>

#include "src/registry.hpp"

namespace weft::internal::tools {

namespace {

std::string letters_of(std::string_view name) {
    std::string letters;
    for (const char letter : name)
        if (letter != '_' && letter != '-') letters += char(std::tolower(uint8_t(letter)));
    return letters;
}

}  // namespace

Result<Collective> collective_meant(const std::string& name) {
    std::string names;
    for (const Collective each : all_collectives) {
        if (letters_of(name) == letters_of(name_of(each))) return each;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(each));
    }
    return fail(error::command_option, "collective `{}` does not exist; the collectives are {}", name, names);
}

Result<const Algorithm*> algorithm_named(const std::string& algorithm, const std::string& collective) {
    const auto found = collective_meant(collective);
    if (!found) return found.status().copy();
    std::string names;
    if (const Algorithm* row = registry::find_algorithm(algorithm, *found)) return row;
    for (const Algorithm& each : registry::algorithms())
        if (each.collective == *found) names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
    return fail(error::command_option, "algorithm `{}` does not exist for {}; the algorithms are {}", algorithm,
                collective, names);
}

}  // namespace weft::internal::tools
