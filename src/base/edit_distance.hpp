// edit_distance.hpp: how similar two words are, to suggest the right one for a misspelt one.
#pragma once
#include <algorithm>
#include <numeric>
#include <string_view>
#include <vector>

namespace weft::internal {

// The number of characters to insert, delete or replace to turn one word into the other. Reentrant.
inline size_t edit_distance(std::string_view one, std::string_view other) {
    std::vector<size_t> row(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t(0));
    for (size_t i = 1; i <= one.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t k = 1; k <= other.size(); ++k) {
            const size_t replaced = diagonal + (one[i - 1] != other[k - 1]);
            diagonal = row[k];
            row[k] = std::min({replaced, row[k] + 1, row[k - 1] + 1});
        }
    }
    return row.back();
}

}  // namespace weft::internal
