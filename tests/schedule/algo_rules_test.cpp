// algo_rules_test.cpp: the grammar of WEFT_ALGO: which rule applies to a call, and which rules are refused.
#include "src/selector/algo_rules.hpp"

#include "src/base/name_list.hpp"
#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"

namespace weft::internal::test {

namespace {

constexpr size_t K = 1024, M = K * K;

AlgoRules rules_of(const char* text, int ranks = 4) { return {text, Layout{ranks}, registry::algorithms()}; }

Status refusal(const char* text) {
    return AlgoRules::check("WEFT_ALGO", text, {"ring", "two_shot", "one_shot", "bruck"});
}

std::string chosen(const char* algo, Collective collective, size_t bytes, int ranks = 4) {
    Operation operation;
    operation.collective = collective;
    operation.type = weftUint8;
    operation.op = weftSum;
    operation.count = bytes / size_t(parts_of(collective, ranks));
    operation.root = 0;
    const auto choice = select(operation, {ranks, 0}, host_link_costs(ranks, 2), {algo, 0}, registry::algorithms());
    return choice ? choice->algorithm->name : choice.status().sentence();
}

}  // namespace

TEST_CASE("the last rule that is for a call binds it", "[algo_rules]") {
    const AlgoRules rules = rules_of(
        " ring ; all_reduce@64K-1M:two_shot;all_gather, broadcast : ^bruck ;@2M-:one_shot;all_reduce@-8:bruck");
    CHECK(rules.names_for(Collective::all_reduce, 9) == "ring");
    CHECK(rules.names_for(Collective::all_reduce, 8) == "bruck");
    CHECK(rules.names_for(Collective::all_reduce, 0) == "bruck");
    CHECK(rules.names_for(Collective::all_reduce, 64 * K - 1) == "ring");
    CHECK(rules.names_for(Collective::all_reduce, 64 * K) == "two_shot");
    CHECK(rules.names_for(Collective::all_reduce, M) == "two_shot");
    CHECK(rules.names_for(Collective::all_reduce, M + 1) == "ring");
    CHECK(rules.names_for(Collective::all_reduce, 2 * M) == "one_shot");
    CHECK(rules.names_for(Collective::all_gather, 100) == "^bruck");
    CHECK(rules.names_for(Collective::broadcast, 100) == "^bruck");
    CHECK(rules.names_for(Collective::reduce_scatter, 100) == "ring");
    CHECK(rules_of("").names_for(Collective::all_reduce, 1) == "");
    CHECK(rules_of(";; ring ;").names_for(Collective::all_reduce, 1) == "ring");
}

TEST_CASE("a rule without a collective is for those that it leaves something", "[algo_rules]") {
    const AlgoRules rules = rules_of("two_shot");
    CHECK(rules.names_for(Collective::all_reduce, 1) == "two_shot");
    CHECK(rules.names_for(Collective::all_to_all, 1) == "");
    // A rule that names the collective applies to it, even if it leaves no algorithm.
    CHECK(rules_of("all_to_all:two_shot").names_for(Collective::all_to_all, 1) == "two_shot");
    CHECK_THAT(chosen("all_to_all:two_shot", Collective::all_to_all, 64),
               Catch::Contains("no algorithm can serve") && Catch::Contains("excluded by WEFT_ALGO"));
}

TEST_CASE("one size between each two borders is bound as all are", "[algo_rules]") {
    const AlgoRules rules = rules_of("all_reduce@10-20:ring;all_reduce@15-30:two_shot;all_reduce@40-:one_shot");
    for (size_t bytes = 0; bytes < 60; ++bytes) {
        size_t border = 0;
        for (const size_t one : rules.borders())
            if (one <= bytes) border = std::max(border, one);
        CHECK(rules.names_for(Collective::all_reduce, bytes) == rules.names_for(Collective::all_reduce, border));
    }
}

TEST_CASE("the choice is one that the rules allow", "[algo_rules]") {
    const char* const algo = "all_reduce@-1K:two_shot;all_reduce@1025-:ring;all_gather:ring";
    CHECK(chosen(algo, Collective::all_reduce, 8) == "two_shot");
    CHECK(chosen(algo, Collective::all_reduce, 1024) == "two_shot");
    CHECK(chosen(algo, Collective::all_reduce, 2048) == "ring");
    CHECK(chosen(algo, Collective::all_gather, 2048) == "ring");
    CHECK(chosen(algo, Collective::all_to_all, 2048) == chosen("", Collective::all_to_all, 2048));
}

TEST_CASE("wrong rules are refused with the rule and the reason", "[algo_rules]") {
    CHECK(refusal("ring;^bruck,one_shot;@1K-2K:ring;all_reduce@5-5:ring"));
    for (const char* text : {"snake", "ring;all_reduce:snake"}) {
        CHECK_ERROR(refusal(text), "option.names");
        CHECK_THAT(refusal(text).sentence(), Catch::Contains("WEFT_ALGO") && Catch::Contains("`snake`") &&
                                                 Catch::Contains("ring, two_shot, one_shot, bruck"));
    }
    for (const auto& [text, word] : std::vector<std::pair<const char*, const char*>>{
             {"all_redcue:ring", "`all_redcue:ring`: `all_redcue`"},
             {"send:ring", "`send`"},
             {"all_reduce@64K:ring", "`64K`"},
             {"all_reduce@2M-1M:ring", "`2M-1M`"},
             {"all_reduce@1X-:ring", "`1X`"},
             {"all_reduce@99999999999999999999-:ring", "`99999999999999999999`"},
             {"all_reduce@-1-5:ring", "all_reduce@-1-5:ring"},
             {"all_reduce:", "all_reduce:"},
             {":", "`:`"}}) {
        CHECK_ERROR(refusal(text), "algorithm.rule");
        CHECK_THAT(refusal(text).sentence(), Catch::Contains(word));
    }
    CHECK_ERROR(refusal("all_reduce:^ring,^two_shot,^one_shot,^bruck"), "option.names");
}

}  // namespace weft::internal::test
