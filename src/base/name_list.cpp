#include "src/base/name_list.hpp"

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

}  // namespace weft::internal
