#include "src/base/error.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/edit_distance.hpp"

namespace weft::internal {

namespace {

constexpr ErrorRow all_errors[] = {
    {"", weftSuccess, "", "", ""},
#define WEFT_ERROR(name, id, code, meaning, causes, remedy) {id, code, meaning, causes, remedy},
#include "src/base/error.def"
#undef WEFT_ERROR
};

constexpr bool fits_name(const ErrorRow& row, std::string_view name) {
    const std::string_view id = row.id;
    if (id.size() != name.size() || id.size() >= error_id_bytes) return false;
    for (size_t i = 0; i < id.size(); ++i)
        if ((id[i] == '.' || id[i] == '-' ? '_' : id[i]) != name[i]) return false;
    return true;
}
#define WEFT_ERROR(name, id, code, meaning, causes, remedy) \
    static_assert(fits_name(all_errors[size_t(ErrorId::name)], #name), "the name of an error is its id");
#include "src/base/error.def"
#undef WEFT_ERROR

}  // namespace

const ErrorRow& row_of(ErrorId error) { return all_errors[size_t(error) < std::size(all_errors) ? size_t(error) : 0]; }

std::span<const ErrorRow> error_rows() { return std::span(all_errors).subspan(1); }

std::optional<ErrorId> error_named(std::string_view id) {
    for (size_t i = 1; i < std::size(all_errors); ++i)
        if (id == all_errors[i].id) return ErrorId(i);
    return {};
}

std::vector<std::string> ids_near(std::string_view id) {
    constexpr size_t near_most = 5;
    std::vector<std::pair<size_t, std::string>> found;
    for (const ErrorRow& row : error_rows()) {
        const std::string_view own = row.id;
        const bool holds = !id.empty() && own.find(id) != own.npos;
        found.emplace_back(holds ? 0 : edit_distance(id, own), own);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    std::vector<std::string> ids;
    for (const auto& [far, own] : found)
        if (ids.empty() || far == 0 || (found[0].first != 0 && ids.size() < near_most)) ids.push_back(own);
    return ids;
}

}  // namespace weft::internal
