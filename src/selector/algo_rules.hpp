// algo_rules.hpp: the rules of WEFT_ALGO and of `algo` in a config: which algorithms may serve which calls. Rules are
// separated by `;`. Each is
//
//     [collective[,collective]...][@least-most]:names
//
// or names alone, for every collective and size. A size is of the whole (base/collective.hpp), in bytes, K, M or G, both
// ends included; an end that is left out is no limit. Names are a NameList. The last matching rule binds a call. A rule
// without a collective applies to the collectives for which it allows some algorithm. Values.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "src/base/result.hpp"

namespace weft::internal {

struct AlgoRule {
    std::vector<Collective> collectives;  // empty: the rule names none
    size_t least_bytes = 0, most_bytes = SIZE_MAX;
    std::string names;
};

class AlgoRules {
  public:
    // weftInvalidArgument names the wrong rule and the possible values. `existing`: the known names.
    static Status check(const char* variable, std::string_view text, const std::vector<std::string_view>& existing);
    // Whether some rule names the algorithm as allowed. check() has passed the text.
    static bool wants(std::string_view text, std::string_view name);

    AlgoRules() = default;
    // check() has passed the text. `rows`: all algorithms.
    AlgoRules(std::string_view text, const Layout& layout, std::span<const Algorithm> rows);

    // The names of the rule that binds a call; empty: no rule does.
    std::string_view names_for(Collective collective, size_t whole_bytes) const;
    // One size for each different set of rules: the begin of each rule, and the size after its end.
    std::vector<size_t> borders() const;

  private:
    static Result<std::vector<AlgoRule>> parse(std::string_view text);
    std::vector<AlgoRule> rules_;  // with their collectives filled in
};

}  // namespace weft::internal
