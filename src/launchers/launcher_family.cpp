#include "src/launchers/launcher_family.hpp"

#include <climits>
#include <cstring>
#include <sstream>

#include "src/base/options.hpp"
#include "src/launchers/node_list.hpp"

namespace weft::internal {

namespace {

std::vector<std::string> words_of(const std::string& text, char separator) {
    std::vector<std::string> words;
    std::stringstream stream(text);
    for (std::string word; std::getline(stream, word, separator);)
        if (!word.empty()) words.push_back(word);
    return words;
}

bool is_set(const std::string& variable) { return environment(variable.c_str()).has_value(); }

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

// Whether the row counts: any of its variables is set.
bool is_present(const Family& family) {
    if (*family.sign && !is_set(family.sign)) return false;
    const std::string names = *family.variables ? family.variables : fmt::format("{} {}", family.rank, family.size);
    for (const std::string& variable : words_of(names, ' '))
        if (is_set(variable)) return true;
    return false;
}

Status check_complete(const Family& family) {
    std::vector<std::string> present, missing;
    for (const std::string& needed : words_of(fmt::format("{} {} {}", family.rank, family.size, family.needs), ' ')) {
        const auto either = words_of(needed, '|');
        const std::string* found = nullptr;
        for (const std::string& variable : either)
            if (!found && is_set(variable)) found = &variable;
        (found ? present : missing).push_back(found ? *found : either[0]);
    }
    if (missing.empty()) return ok();
    // `variables` may contain more than the family needs.
    if (present.empty())
        for (const std::string& variable : words_of(family.variables, ' '))
            if (is_set(variable)) present.push_back(variable);
    const std::string hint = *family.hint ? family.hint : fmt::format("set all of {}'s variables or none", family.name);
    return fail(error::launcher_variables, "{} is set but {} is not: {}", joined(present), joined(missing), hint);
}

Result<int> number(const char* variable, int least) {
    const std::string text = environment(variable).value_or("");
    auto value = parse_integer(text);
    if (!value || *value < least || *value > INT_MAX)
        return fail(error::launcher_variables, "{} is `{}`, not a number from {} on", variable, text, least);
    return int(*value);
}

// LIST[INDEX]: the entry of a list of task counts; -1 if either is not set.
Result<int> counted_entry(const std::string& column) {
    const size_t open = column.find('[');
    const std::string list = column.substr(0, open), index = column.substr(open + 1, column.size() - open - 2);
    if (!is_set(list) || !is_set(index)) return -1;
    auto counts = parse_task_counts(*environment(list.c_str()));
    if (!counts) return fail(counts.status(), "{}: {}", list, counts.status().sentence());
    auto entry = number(index.c_str(), 0);
    if (!entry) return entry.take_status();
    if (size_t(*entry) >= counts->size())
        return fail(error::launcher_variables, "{} is {}, but {} has {} nodes", index, *entry, list, counts->size());
    return (*counts)[size_t(*entry)];
}

// The number of a column that need not be set; -1: it is not.
Result<int> optional_number(const char* column, int least) {
    if (!*column) return -1;
    if (*column >= '0' && *column <= '9') return *column - '0';
    if (strchr(column, '[')) return counted_entry(column);
    if (!is_set(column)) return -1;
    return number(column, least);
}

}  // namespace

const std::vector<Family>& launcher_families() {
    static const std::vector<Family>& families = *new std::vector<Family>{
#define WEFT_LAUNCHER(...) Family{__VA_ARGS__},
#include "src/launchers/families.def"
#undef WEFT_LAUNCHER
    };
    return families;
}

// The first row after `family` whose variables are all set, and its size: 0 if the variable is no number, -1 if the row
// has no size. Null: there is no such row.
static std::pair<const Family*, int> complete_after(const Family& family) {
    const auto& rows = launcher_families();
    for (const Family* row = &family + 1; row < rows.data() + rows.size(); ++row) {
        if (!is_present(*row) || !check_complete(*row)) continue;
        if (!*row->size) return {row, -1};
        auto size = number(row->size, 1);
        return {row, size ? *size : 0};
    }
    return {nullptr, 0};
}

// Users also set inheritable variables in a shell or an image. If another launcher's variables are all set, that
// launcher started the process.
static Result<const Family*> innermost(const Family& family, std::string& warning) {
    const auto [other, other_size] = complete_after(family);
    if (!other) return &family;
    if (Status incomplete = check_complete(family); !incomplete) {
        warning = fmt::format("{}; {} started this process, so {}'s variables are ignored: unset them",
                              incomplete.sentence(), other->name, family.name);
        return other;
    }
    auto size = number(family.size, 1);
    if (!size || other_size == 0 || other_size == 1 || *size == other_size) return &family;
    if (*size == 1) {
        warning = fmt::format(
            "{} is 1, but {} started this process{}: {}'s variables ({}, {}) are ignored as left over; unset them",
            family.size, other->name,
            other_size > 1 ? fmt::format(" as one of {} ranks ({})", other_size, other->size) : "", family.name,
            family.rank, family.size);
        return other;
    }
    if (other_size < 0) return &family;
    return fail(error::launcher_variables,
                "{} is {} ({}) and {} is {} ({}): either launcher may have started this process; unset the variables "
                "of the other",
                family.size, *size, family.name, other->size, other_size, other->name);
}

Result<const Family*> find_family(std::string* warning) {
    for (const Family& family : launcher_families()) {
        if (!is_present(family)) continue;
        if (!family.inheritable) {
            WEFT_TRY(check_complete(family));
            return &family;
        }
        std::string overruled;
        auto found = innermost(family, overruled);
        if (warning) *warning = overruled;
        if (found) WEFT_TRY(check_complete(**found));
        return found;
    }
    return nullptr;
}

Result<LaunchedRank> read_launched_rank(const Family& family) {
    auto rank = number(family.rank, 0);
    if (!rank) return rank.take_status();
    LaunchedRank place;
    place.rank = *rank;
    place.ranks = -1;
    if (*family.size) {
        auto size = number(family.size, 1);
        if (!size) return size.take_status();
        place.ranks = *size;
        if (place.rank >= place.ranks)
            return fail(error::launcher_variables,
                        "{} is {} and {} is {}: ranks count from 0 to one less than the size", family.rank, place.rank,
                        family.size, place.ranks);
    }
    auto local_rank = optional_number(family.local_rank, 0), local_size = optional_number(family.local_size, 1);
    if (!local_rank) return local_rank.take_status();
    if (!local_size) return local_size.take_status();
    place.local_rank = *local_rank;
    place.local_size = *local_size;
    if (place.local_size > 0 && place.local_rank >= place.local_size)
        return fail(error::launcher_variables,
                    "{} is {} and {} is {}: ranks of a host count from 0 to one less than the size", family.local_rank,
                    place.local_rank, family.local_size, place.local_size);
    if (place.ranks > 0 && place.local_size > place.ranks)
        return fail(error::launcher_variables, "{} is {} and {} is {}: a host has no more ranks than the job",
                    family.local_size, place.local_size, family.size, place.ranks);
    return place;
}

std::string family_identity(const Family& family) {
    std::string identity;
    for (const std::string& variable : words_of(family.identity, ' '))
        if (const auto value = environment(variable.c_str())) identity += fmt::format("{} {} ", variable, *value);
    return identity;
}

}  // namespace weft::internal
