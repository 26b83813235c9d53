#include "src/base/name_list.hpp"

#include <numeric>

namespace weft::internal {

Status check_names(const char* variable, std::string_view text, const std::vector<std::string_view>& existing) {
    const NameList list(text);
    std::string names;
    for (const std::string_view name : existing) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
    for (const auto* words : {&list.allowed, &list.excluded})
        for (const std::string_view word : *words)
            if (std::find(existing.begin(), existing.end(), word) == existing.end())
                return fail(error::option_names, "{} names `{}`, which does not exist; the names are {}", variable,
                            word, names);
    if (std::none_of(existing.begin(), existing.end(), [&](std::string_view name) { return list.admits(name); }))
        return fail(error::option_names, "{} is `{}`, which excludes everything; the names are {}", variable, text,
                    names);
    return ok();
}

size_t edit_distance(std::string_view one, std::string_view other) {
    std::vector<size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t(0));
    for (size_t i = 1; i <= one.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= other.size(); ++k) {
            size_t replaced = diagonal + (one[i - 1] != other[k - 1]);
            diagonal = row[k];
            row[k] = std::min({replaced, row[k] + 1, row[k - 1] + 1});
        }
    }
    return row.back();
}

}  // namespace weft::internal
