#include "src/selector/selector.hpp"

#include <algorithm>
#include <utility>

#include "src/base/name_list.hpp"
#include "src/selector/algo_rules.hpp"

namespace weft::internal {

uint64_t Choice::hash() const {
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char* letter = algorithm->name; *letter; ++letter) hash = (hash ^ uint64_t(*letter)) * 0x100000001b3u;
    return (hash ^ uint64_t(parameters.channels)) * 0x100000001b3u ^ rings;
}

std::string not_meant_for(const Algorithm& row, const Operation& operation, int ranks) {
    if (!row.of_user) return {};
    const Schedule& schedule = row.of_user->schedules[0];
    const int64_t bytes = int64_t(operation.whole_bytes(ranks));
    if (bytes < schedule.least_bytes || bytes > schedule.most_bytes)
        return fmt::format("is for {} to {} bytes", schedule.least_bytes, schedule.most_bytes);
    if (schedule.root >= 0 && schedule.root != operation.root) return fmt::format("is for root {}", schedule.root);
    return {};
}

// Why a row does not combine in the required order; null: it does.
static const char* wrong_order(const Algorithm& row, const Operation& operation, const Preferences& preferences,
                               const NameList& list) {
    if (!facts_of(operation.collective).reduces) return nullptr;
    const bool wanted = preferences.deterministic || operation.keeps_order();
    if (wanted && row.sums != Sums::in_rank_order)
        return preferences.deterministic
                   ? "does not combine in rank order, as WEFT_DETERMINISTIC wants"
                   : "does not combine in rank order, as a reduction that is not commutative wants";
    const bool named = std::find(list.allowed.begin(), list.allowed.end(), row.name) != list.allowed.end();
    return row.on_demand && !wanted && !named ? "is for combining in rank order, which nothing asks for" : nullptr;
}

std::vector<Candidate> candidates(const Operation& operation, const Layout& own, const Costs& costs,
                                  const Preferences& preferences, std::span<const Algorithm> rows) {
    // As rank 0 sees it: a host may have more ranks than another, and all must predict alike.
    Layout layout = own;
    layout.rank = 0;
    const AlgoRules rules(preferences.algo, layout, rows);
    // Rules do not apply to Weft's own operations, such as those of a split.
    const NameList list(operation.is_wefts_own()
                            ? std::string_view()
                            : rules.names_for(operation.collective, operation.whole_bytes(layout.ranks)));
    std::vector<Candidate> all;
    for (const Algorithm& row : rows) {
        if (row.collective != operation.collective) continue;
        Candidate candidate{&row, predict(row, layout, costs, operation.whole_bytes(layout.ranks)), {}};
        if (const char* refusal = row.refusal(layout))
            candidate.excluded = refusal;
        else if (!list.admits(row.name))
            candidate.excluded = "excluded by WEFT_ALGO";
        else if (const char* order = wrong_order(row, operation, preferences, list))
            candidate.excluded = order;
        else
            candidate.excluded = not_meant_for(row, operation, layout.ranks);
        all.push_back(std::move(candidate));
    }
    return all;
}

Result<Choice> select(const Operation& operation, const Layout& layout, const Costs& costs,
                      const Preferences& preferences, std::span<const Algorithm> rows) {
    const Candidate* best = nullptr;
    const std::vector<Candidate> all = candidates(operation, layout, costs, preferences, rows);
    for (const Candidate& candidate : all)
        if (candidate.excluded.empty() && (!best || candidate.predicted.us < best->predicted.us)) best = &candidate;
    if (!best) {
        std::string reasons;
        for (const Candidate& candidate : all)
            reasons +=
                fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", candidate.algorithm->name, candidate.excluded);
        return fail(error::algorithm_none, "no algorithm can serve {} on {} rank{} ({})", operation.text(),
                    layout.ranks, layout.ranks == 1 ? "" : "s", reasons);
    }
    return Choice{best->algorithm,
                  {.channels = preferences.channels > 0 ? preferences.channels : 1,
                   .root = facts_of(operation.collective).rooted ? operation.root : -1},
                  best->predicted};
}

namespace {

const char* basis_of(const Prediction& prediction) {
    switch (prediction.basis) {
        case Basis::scaled: return "predicted from what was measured";
        case Basis::measured: return "measured";
        case Basis::scaled_simulated: return "predicted from what was simulated";
        case Basis::simulated: return "simulated";
        default: return "predicted";
    }
}

std::string prediction_text(const Prediction& prediction) {
    return fmt::format("{:.2f} us {}", prediction.us, basis_of(prediction));
}

std::string transports_of(const Layout& layout, std::string_view network) {
    const int hosts = layout.host_count();
    return hosts == 1 ? "shm" : fmt::format("{}{}", hosts == layout.ranks ? "" : "shm+", network);
}

std::string ranks_text(const Layout& layout) {
    const int hosts = layout.host_count();
    return fmt::format("{} {}{}", layout.ranks, layout.ranks == 1 ? "rank" : "ranks",
                       hosts > 1 ? fmt::format(" of {} hosts", hosts) : "");
}

}  // namespace

std::string choice_text(const Operation& operation, const Layout& layout, const Choice& choice,
                        std::vector<Candidate> candidates, std::string_view network) {
    const bool of_user = choice.algorithm->of_user != nullptr;
    std::string text =
        fmt::format("{} ({} bytes) on {}: {} over {}, {}", operation.text(), operation.whole_bytes(layout.ranks),
                    ranks_text(layout), choice.algorithm->name, transports_of(layout, network),
                    of_user ? "as WEFT_ALGO_FILES says" : prediction_text(choice.predicted));
    std::erase_if(candidates, [&](const Candidate& one) {
        return !one.excluded.empty() || one.algorithm == choice.algorithm || one.algorithm->of_user;
    });
    std::stable_sort(candidates.begin(), candidates.end(),
                     [](const Candidate& a, const Candidate& b) { return a.predicted.us < b.predicted.us; });
    const char* between = "; ";
    for (const Candidate& one : candidates) {
        const bool alike = !of_user && one.predicted.basis == choice.predicted.basis;
        text += fmt::format("{}{} {:.2f} us{}{}", std::exchange(between, ", "), one.algorithm->name, one.predicted.us,
                            alike ? "" : " ", alike ? "" : basis_of(one.predicted));
    }
    return text;
}

std::string explain(const Operation& operation, const Layout& layout, const Costs& costs,
                    const Preferences& preferences, std::span<const Algorithm> rows) {
    std::string text = fmt::format("{} ({} bytes) on {}, {} a core\n", operation.text(),
                                   operation.whole_bytes(layout.ranks), ranks_text(layout), costs.links.ranks_per_core);
    for (const Candidate& candidate : candidates(operation, layout, costs, preferences, rows))
        text += fmt::format(
            "candidate {}: {}{}{}; {}\n", candidate.algorithm->name,
            candidate.algorithm->of_user ? "the user's, before Weft's own" : prediction_text(candidate.predicted),
            candidate.excluded.empty() ? "" : ", out: ", candidate.excluded, candidate.algorithm->cost);
    const auto choice = select(operation, layout, costs, preferences, rows);
    if (!choice) return text + choice.status().sentence();
    return text + fmt::format("chosen: {} over {}, {}", choice->algorithm->name, transports_of(layout, costs.network),
                              choice->algorithm->of_user                    ? "as WEFT_ALGO_FILES says"
                              : choice->predicted.basis == Basis::measured  ? "least time that was measured"
                              : choice->predicted.basis == Basis::simulated ? "least time that was simulated"
                                                                            : "least predicted time");
}

}  // namespace weft::internal
