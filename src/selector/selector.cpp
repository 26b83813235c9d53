#include "src/selector/selector.hpp"

#include <algorithm>

namespace weft {

namespace {

struct AlgoList {
    std::vector<std::string_view> allowed, excluded;

    explicit AlgoList(std::string_view text) {
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

}  // namespace

uint64_t Choice::hash() const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char* letter = algorithm->name; *letter; ++letter) hash = (hash ^ uint64_t(*letter)) * 0x100000001b3u;
    return (hash ^ uint64_t(parameters.channels)) * 0x100000001b3u;
}

Status check_algo(std::string_view algo, std::span<const Algorithm> rows) {
    const AlgoList list(algo);
    std::string names;
    for (const Algorithm& row : rows) names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
    for (const auto* words : {&list.allowed, &list.excluded})
        for (const std::string_view word : *words)
            if (std::none_of(rows.begin(), rows.end(), [&](const Algorithm& row) { return word == row.name; }))
                return fail(weftInvalidArgument, "WEFT_ALGO names `{}`, which does not exist; there are {}", word,
                            names);
    if (std::none_of(rows.begin(), rows.end(), [&](const Algorithm& row) { return list.admits(row.name); }))
        return fail(weftInvalidArgument, "WEFT_ALGO `{}` excludes every algorithm; there are {}", algo, names);
    return ok();
}

std::vector<Candidate> candidates(const Operation& operation, const Layout& layout, const LinkCosts& costs,
                                  const Preferences& preferences, std::span<const Algorithm> rows) {
    const AlgoList list(preferences.algo);
    std::vector<Candidate> all;
    for (const Algorithm& row : rows) {
        if (row.collective != operation.collective) continue;
        Candidate candidate{&row, row.predict_us(layout, costs, operation.bytes()), {}};
        if (layout.ranks < row.ranks_min)
            candidate.excluded = fmt::format("needs {} ranks", row.ranks_min);
        else if (!list.admits(row.name))
            candidate.excluded = "excluded by WEFT_ALGO";
        all.push_back(std::move(candidate));
    }
    return all;
}

Result<Choice> select(const Operation& operation, const Layout& layout, const LinkCosts& costs,
                      const Preferences& preferences, std::span<const Algorithm> rows) {
    const Candidate* best = nullptr;
    const std::vector<Candidate> all = candidates(operation, layout, costs, preferences, rows);
    for (const Candidate& candidate : all)
        if (candidate.excluded.empty() && (!best || candidate.predicted_us < best->predicted_us)) best = &candidate;
    if (!best) {
        std::string reasons;
        for (const Candidate& candidate : all)
            reasons +=
                fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.algorithm->name, candidate.excluded);
        return fail(weftInvalidArgument, "no algorithm can serve {} on {} ranks ({})", operation.text(), layout.ranks,
                    reasons);
    }
    return Choice{best->algorithm, {preferences.channels > 0 ? preferences.channels : 1}, best->predicted_us};
}

LinkCosts host_link_costs(int ranks, int cores) {
    LinkCosts costs;
    costs.ranks_per_core = (ranks + cores - 1) / std::max(1, cores);
    return costs;
}

}  // namespace weft
