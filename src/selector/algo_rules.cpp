#include "src/selector/algo_rules.hpp"

#include <algorithm>

#include "src/base/name_list.hpp"
#include "src/base/options.hpp"

namespace weft::internal {

namespace {

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// Removes and returns the text before the separator. The separator is removed, too.
std::string_view take(std::string_view& text, char separator) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    return trimmed(word);
}

Status read_range(std::string_view text, AlgoRule& rule) {
    const size_t dash = text.find('-');
    if (dash == std::string_view::npos)
        return fail(error::algorithm_rule, "the range of sizes `{}` is not `least-most`", text);
    const auto read = [](std::string_view word, size_t& bytes) {
        if (word.empty()) return ok();
        const auto number = parse_integer(std::string(word), true);
        if (!number || *number < 0) return fail(error::algorithm_rule, "`{}` is not a size", word);
        bytes = size_t(*number);
        return ok();
    };
    WEFT_TRY(read(trimmed(text.substr(0, dash)), rule.least_bytes));
    WEFT_TRY(read(trimmed(text.substr(dash + 1)), rule.most_bytes));
    if (rule.least_bytes > rule.most_bytes)
        return fail(error::algorithm_rule, "the range of sizes `{}` is empty", text);
    return ok();
}

Status read_rule(std::string_view text, AlgoRule& rule) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos) {
        rule.names = text;
        return ok();
    }
    rule.names = trimmed(text.substr(colon + 1));
    std::string_view calls = trimmed(text.substr(0, colon));
    const size_t at = calls.find('@');
    if (at != std::string_view::npos) WEFT_TRY(read_range(trimmed(calls.substr(at + 1)), rule));
    for (calls = trimmed(calls.substr(0, at)); !calls.empty();) {
        const std::string_view name = take(calls, ',');
        const auto collective = collective_named(name);
        if (!collective || std::find(std::begin(all_collectives), std::end(all_collectives), *collective) ==
                               std::end(all_collectives)) {
            std::string names;
            for (const Collective one : all_collectives)
                names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(one));
            return fail(error::algorithm_rule, "`{}` is not a collective; the collectives are {}", name, names);
        }
        rule.collectives.push_back(*collective);
    }
    if (rule.names.empty()) return fail(error::algorithm_rule, "the rule names no algorithm");
    return ok();
}

// Whether a list applies to a collective: it allows some algorithm that can serve it here. A list applies to all-reduce
// even if its algorithms cannot serve, so that this becomes an error.
bool concerns(const NameList& list, Collective collective, const Layout& layout, std::span<const Algorithm> rows) {
    return std::any_of(rows.begin(), rows.end(), [&](const Algorithm& row) {
        return row.collective == collective && list.admits(row.name) &&
               (collective == Collective::all_reduce || !row.refusal(layout));
    });
}

}  // namespace

Result<std::vector<AlgoRule>> AlgoRules::parse(std::string_view text) {
    std::vector<AlgoRule> rules;
    while (!text.empty()) {
        const std::string_view one = take(text, ';');
        if (one.empty()) continue;
        if (const Status read = read_rule(one, rules.emplace_back()); !read)
            return fail(read, "the rule `{}`: {}; rules are `collective@least-most:names` or names", one,
                        read.sentence());
    }
    return rules;
}

Status AlgoRules::check(const char* variable, std::string_view text, const std::vector<std::string_view>& existing) {
    const auto rules = parse(text);
    if (!rules) return fail(rules.status(), "{}: {}", variable, rules.status().sentence());
    for (const AlgoRule& rule : *rules) WEFT_TRY(check_names(variable, rule.names, existing));
    return ok();
}

bool AlgoRules::wants(std::string_view text, std::string_view name) {
    const auto rules = parse(text);
    return rules && std::any_of(rules->begin(), rules->end(), [&](const AlgoRule& rule) {
               const NameList list(rule.names);
               return std::find(list.allowed.begin(), list.allowed.end(), name) != list.allowed.end();
           });
}

AlgoRules::AlgoRules(std::string_view text, const Layout& layout, std::span<const Algorithm> rows) {
    auto rules = parse(text);
    if (rules) rules_ = std::move(*rules);
    for (AlgoRule& rule : rules_) {
        if (!rule.collectives.empty()) continue;
        for (const Collective collective : all_collectives)
            if (concerns(NameList(rule.names), collective, layout, rows)) rule.collectives.push_back(collective);
    }
}

std::string_view AlgoRules::names_for(Collective collective, size_t whole_bytes) const {
    const auto binds = [&](const AlgoRule& rule) {
        return rule.least_bytes <= whole_bytes && whole_bytes <= rule.most_bytes &&
               std::find(rule.collectives.begin(), rule.collectives.end(), collective) != rule.collectives.end();
    };
    const auto last = std::find_if(rules_.rbegin(), rules_.rend(), binds);
    return last == rules_.rend() ? std::string_view() : std::string_view(last->names);
}

std::vector<size_t> AlgoRules::borders() const {
    std::vector<size_t> all = {0};
    for (const AlgoRule& rule : rules_) {
        all.push_back(rule.least_bytes);
        if (rule.most_bytes < SIZE_MAX) all.push_back(rule.most_bytes + 1);
    }
    return all;
}

}  // namespace weft::internal
