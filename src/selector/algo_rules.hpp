// algo_rules.hpp: which algorithms may serve which calls, as WEFT_ALGO and `algo` of a config say it. The text is rules with
// `;` between them, each
//
//     [collective[,collective]...][@least-most]:names
//
// or names alone, which are for every collective and size. A size is of the whole (base/collective.hpp), in bytes, K, M or
// G, both ends included, either left out if there is none; names are a NameList. The last rule that is for a call binds it.
// A rule that names no collective is for those of which it allows some algorithm. Values.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

struct AlgoRule {
    std::vector<Collective> collectives;  // empty: none is named
    size_t least_bytes = 0, most_bytes = SIZE_MAX;
    std::string names;
};

class AlgoRules {
  public:
    // weftInvalidArgument, with the rule that is wrong and what it can be. `existing`: the names that there are.
    static Status check(const char* variable, std::string_view text, const std::vector<std::string_view>& existing);
    // Whether some rule of a text that check() passed names the algorithm as one that it allows.
    static bool wants(std::string_view text, std::string_view name);

    AlgoRules() = default;
    // Of a text that check() passed, for ranks that lie so; `rows`: all algorithms.
    AlgoRules(std::string_view text, const Layout& layout, std::span<const Algorithm> rows);

    // The names that bind a call; empty: none do.
    std::string_view names_for(Collective collective, size_t whole_bytes) const;
    // Sizes of which one is bound as any size is: where a rule begins, or another one begins to count behind its end.
    std::vector<size_t> borders() const;

  private:
    static Result<std::vector<AlgoRule>> parse(std::string_view text);
    std::vector<AlgoRule> rules_;  // all with their collectives
};

}  // namespace weft::internal
