// name_list.hpp: a user's list of names: allowed ones, or after ^ excluded ones. A value.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "src/base/result.hpp"

namespace weft::internal {

struct NameList {
    std::vector<std::string_view> allowed, excluded;

    // A view of the text, which must outlive it.
    explicit NameList(std::string_view text) {
        while (!text.empty()) {
            const size_t comma = std::min(text.find(','), text.size());
            std::string_view word = text.substr(0, comma);
            text.remove_prefix(std::min(comma + 1, text.size()));
            while (!word.empty() && word.front() == ' ') word.remove_prefix(1);
            while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
            if (word.empty()) continue;
            if (word.front() == '^')
                excluded.push_back(word.substr(1));
            else
                allowed.push_back(word);
        }
    }
    bool admits(std::string_view name) const {
        if (std::find(excluded.begin(), excluded.end(), name) != excluded.end()) return false;
        return allowed.empty() || std::find(allowed.begin(), allowed.end(), name) != allowed.end();
    }
};

// Checks the list in `variable` against all names that exist. weftInvalidArgument.
Status check_names(const char* variable, std::string_view text, const std::vector<std::string_view>& existing);

}  // namespace weft::internal
