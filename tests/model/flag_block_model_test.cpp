// The flag block's protocol under every interleaving: its invariants, the number of slots that it needs, and a proof
// that the explorer can fail.
#include <fmt/core.h>

#include <chrono>
#include <cstdlib>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/model/explorer.hpp"

namespace weft::internal::model {
namespace {

constexpr std::array<Export, 3> nobody{}, everybody{Export::both, Export::both, Export::both},
    inputs{Export::input, Export::input, Export::input}, some{Export::both, Export::nothing, Export::input};
constexpr std::array<bool, 3> apart{}, in_place{true, true, true}, mixed{true, false, true};

Call one_shot_inline() { return {Shape::one_shot_inline, 1, nobody, mixed}; }
Call one_shot(int tiles = 1) { return {Shape::one_shot, tiles, nobody, mixed}; }
Call exported(int tiles, std::array<Export, 3> exports = nobody, std::array<bool, 3> places = mixed) {
    return {Shape::one_shot_exporting, tiles, exports, places};
}
Call two_shot(int tiles, std::array<Export, 3> exports = nobody, std::array<bool, 3> places = mixed) {
    return {Shape::two_shot, tiles, exports, places};
}
Call pipelined(int tiles, std::array<Export, 3> exports = nobody, std::array<bool, 3> places = mixed) {
    return {Shape::two_shot_pipelined, tiles, exports, places};
}

Call two_level(int tiles, int owners = ranks_most, std::array<bool, 3> places = mixed) {
    return {Shape::two_level, tiles, nobody, places, owners};
}

std::vector<Call> all_calls() {
    return {one_shot_inline(),
            one_shot(),
            two_shot(1),
            two_shot(3),
            pipelined(3),
            two_shot(2, everybody, apart),
            pipelined(2, everybody),
            two_shot(2, inputs, in_place),
            two_shot(2, some),
            pipelined(3, some, in_place),
            exported(2, everybody),
            exported(2, some)};
}
std::vector<Call> plain_calls() {
    std::vector<Call> plain = all_calls();
    std::erase_if(plain, [](const Call& call) { return call.shape == Shape::two_shot_pipelined; });
    return plain;
}
std::vector<Call> few_calls() {
    return {one_shot(),         two_shot(2),      pipelined(2), two_shot(1, everybody, in_place),
            pipelined(2, some), exported(2, some)};
}

// Explores many scenarios and says at its end how much that was.
class Suite {
  public:
    explicit Suite(const char* name) : name_(name), begin_(std::chrono::steady_clock::now()) {}
    ~Suite() {
        const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
        fmt::print("{}: {} scenarios, {} states, at most {} in one, {:.1f} s\n", name_, scenarios_, states_, most_,
                   seconds.count());
    }
    void holds(const Scenario& scenario) {
        const Report report = explore(scenario);
        ++scenarios_;
        states_ += report.states;
        most_ = std::max(most_, report.states);
        if (report.broken.empty()) return;
        INFO(scenario.text());
        INFO(report.text());
        FAIL("a promise is broken");
    }
    // Every sequence of `length` calls of `calls`.
    void all_sequences(Scenario scenario, const std::vector<Call>& calls, int length) {
        size_t count = 1;
        for (int i = 0; i < length; ++i) count *= calls.size();
        for (size_t number = 0; number < count; ++number) {
            scenario.calls.clear();
            for (size_t rest = number, i = 0; i < size_t(length); ++i, rest /= calls.size())
                scenario.calls.push_back(calls[rest % calls.size()]);
            holds(scenario);
        }
    }

  private:
    const char* name_;
    std::chrono::steady_clock::time_point begin_;
    size_t scenarios_ = 0, states_ = 0, most_ = 0;
};

// Of sequences that take the longest to explore.
int length_most() { return test::small() ? 2 : 3; }

constexpr std::array<bool, 3> all_map{true, true, true}, one_cannot_map{true, false, true};

}  // namespace

TEST_CASE("every sequence of three calls keeps the promises, two ranks", "[model]") {
    Suite suite("three calls, two ranks");
    suite.all_sequences({.ranks = 2}, all_calls(), 3);
    suite.all_sequences({.ranks = 2, .mapped = one_cannot_map}, all_calls(), 3);
}

TEST_CASE("every sequence of three calls keeps the promises, three ranks", "[model]") {
    Suite suite("three calls, three ranks");
    suite.all_sequences({.ranks = 3}, few_calls(), length_most());
    suite.all_sequences({.ranks = 3, .mapped = one_cannot_map}, few_calls(), length_most());
    suite.all_sequences({.ranks = 3}, all_calls(), 2);
}

TEST_CASE("a rank may die between any two steps: all others end", "[model]") {
    Suite suite("death");
    suite.all_sequences({.ranks = 2, .may_die = true}, all_calls(), length_most());
    suite.all_sequences({.ranks = 2, .mapped = one_cannot_map, .may_die = true}, all_calls(), 2);
    for (const Call& call : all_calls()) suite.holds({.ranks = 3, .calls = {call}, .may_die = true});
    suite.all_sequences({.ranks = 3, .may_die = true}, {one_shot(), two_shot(1, everybody), two_shot(1, some)}, 2);
}

TEST_CASE("any wait may end by its deadline: no rank takes garbage for a result or writes outside its memory",
          "[model]") {
    Suite suite("deadlines");
    suite.all_sequences({.ranks = 2, .may_give_up = true}, all_calls(), length_most());
    suite.all_sequences({.ranks = 2, .mapped = one_cannot_map, .may_give_up = true}, all_calls(), 2);
    for (const Call& call : all_calls()) suite.holds({.ranks = 3, .calls = {call}, .may_give_up = true});
    suite.all_sequences({.ranks = 3, .may_give_up = true}, {one_shot(), two_shot(1, everybody), two_shot(1, some)}, 2);
}

TEST_CASE("slots grow when their owner needs it, or fail to and all end", "[model]") {
    Suite suite("growth");
    const std::vector<Call> calls{one_shot_inline(), one_shot(), two_shot(2), pipelined(2, some)};
    suite.all_sequences({.ranks = 2, .growth_may_fail = true}, calls, 3);
    suite.all_sequences({.ranks = 3, .growth_may_fail = true}, calls, 2);
}

TEST_CASE("a mismatched call ends in an error on every rank", "[model]") {
    Suite suite("mismatch");
    for (const bool may_die : {false, true})
        for (const Call& call : all_calls())
            for (const Call& odd : all_calls()) {
                if (odd.shape == call.shape && odd.tiles == call.tiles) continue;
                Scenario scenario{
                    .ranks = 2, .calls = {call}, .odd_rank = 1, .odd_index = 0, .odd_call = odd, .may_die = may_die};
                suite.holds(scenario);
                scenario.calls = {two_shot(1, everybody), call, one_shot()};
                scenario.odd_index = 1;
                suite.holds(scenario);
                if (may_die) continue;
                scenario.ranks = 3;
                for (scenario.odd_rank = 0; scenario.odd_rank < 3; ++scenario.odd_rank) suite.holds(scenario);
            }
}

TEST_CASE("plain calls need two slots, pipelined ones three", "[model]") {
    Suite suite("fewest slots");
    for (const int ranks : {2, 3}) {
        // Three of three ranks: 12 million states, some seconds; those of a sanitizer are minutes.
        const int length = ranks == 3 && test::small() ? 2 : 3;
        suite.all_sequences({.ranks = ranks, .slots = 2}, plain_calls(), length);
        suite.all_sequences({.ranks = ranks, .slots = 2, .mapped = one_cannot_map}, plain_calls(), length);
        suite.all_sequences({.ranks = ranks, .slots = 3}, all_calls(), ranks == 2 ? 3 : 2);
        suite.holds({.ranks = ranks, .slots = 2, .calls = {two_shot(3), two_shot(2), one_shot()}});
        suite.holds({.ranks = ranks, .slots = 3, .calls = {pipelined(3, some), pipelined(2), one_shot(2)}});
        const Scenario too_few[] = {{.ranks = ranks, .slots = 1, .calls = {one_shot(), one_shot()}},
                                    {.ranks = ranks, .slots = 1, .calls = {two_shot(2)}},
                                    {.ranks = ranks, .slots = 2, .calls = {pipelined(3), one_shot()}}};
        for (const Scenario& scenario : too_few) {
            const Report report = explore(scenario);
            fmt::print("too few slots: {}\n{}\n", scenario.text(), report.text());
            INFO(scenario.text());
            CHECK(report.broken != "");
        }
    }
}

TEST_CASE("plain calls may go round in two slots of four, among others that take all", "[model]") {
    Suite suite("two of four slots");
    for (const int ranks : {2, 3}) {
        const bool few = ranks == 2;
        suite.all_sequences({.ranks = ranks, .in_order_slots = 2}, all_calls(), few ? 3 : 2);
        suite.all_sequences({.ranks = ranks, .in_order_slots = 2, .growth_may_fail = true},
                            {one_shot(), two_shot(2), pipelined(2, some)}, few ? 3 : 2);
        // From each place to each.
        for (int tiles = 1; tiles <= 4; ++tiles)
            for (const Call& others : {pipelined(2), pipelined(3), one_shot_inline(), two_level(2, ranks)})
                for (const Call& plain : {one_shot(2), two_shot(3)}) {
                    suite.holds({.ranks = 2, .in_order_slots = 2, .calls = {one_shot(tiles), others, plain}});
                    suite.holds({.ranks = 2, .in_order_slots = 2, .calls = {pipelined(tiles), plain, others}});
                }
        const Report report = explore({.ranks = ranks, .in_order_slots = 1, .calls = {one_shot(), two_shot(1)}});
        CHECK(report.broken != "");
    }
}

TEST_CASE("two-level calls keep the promises, with any owners of shards and any distance of the blocks", "[model]") {
    Suite suite("two-level");
    for (const int owners : {1, 2}) {
        // More tiles than slots, so that each is used again within the call, and after every other kind of call.
        suite.holds({.ranks = 2, .calls = {two_level(5, owners)}});
        for (const Call& other : all_calls()) suite.holds({.ranks = 2, .calls = {other, two_level(2, owners), other}});
        suite.all_sequences({.ranks = 2, .slots = 3}, {two_level(4, owners), one_shot(), pipelined(2)}, 2);
    }
    for (const int owners : {1, 2, 3}) {
        suite.holds({.ranks = 3, .calls = {two_level(1, owners), one_shot()}});
        if (owners > 1) suite.holds({.ranks = 3, .slots = 2, .calls = {two_level(3, owners)}});
        if (owners > 1) suite.holds({.ranks = 3, .calls = {two_level(1, owners)}, .may_die = true});
    }
    for (const int odd_rank : {0, 1})
        for (const int owners : {1, 2})
            for (const Call& odd : {one_shot(), two_shot(2), pipelined(3), two_level(1, owners)}) {
                Scenario scenario{.ranks = 2, .calls = {two_level(2, owners)}, .odd_rank = odd_rank, .odd_index = 0};
                scenario.odd_call = odd;
                suite.holds(scenario);
            }
    suite.all_sequences({.ranks = 2, .may_die = true}, {two_level(2, 1), two_level(2), two_shot(1), one_shot()}, 2);
    suite.all_sequences({.ranks = 2, .may_give_up = true}, {two_level(2, 1), two_level(2), two_shot(1), one_shot()}, 2);
}

TEST_CASE("every seeded fault is found, with the steps that lead to it", "[model]") {
    struct Row {
        Fault fault;
        Scenario scenario;
        const char* finding;  // part of the sentence expected
    };
    const Call direct = two_shot(1, everybody), partly = two_shot(2, some), fused = pipelined(3, some);
    const std::array<bool, 3> no = one_cannot_map, yes = all_map;
    const Row rows[] = {
        {Fault::entry_before_staging, {.calls = {one_shot()}}, "finds nothing"},
        {Fault::entry_before_staging, {.ranks = 3, .calls = {two_shot(1)}}, "finds nothing"},
        {Fault::entry_before_payload, {.calls = {one_shot_inline()}}, "payload"},
        {Fault::entry_before_payload, {.calls = {direct}}, "reads no export"},
        {Fault::next_entry_before_reads, {.slots = 2, .calls = {one_shot(3)}}, "finds the contribution of tile 2"},
        {Fault::done_before_result, {.calls = {two_shot(1)}}, "wants the result of tile 0"},
        {Fault::done_wait_dropped, {.calls = {two_shot(1)}}, "wants the result of tile 0"},
        {Fault::done_wait_dropped, {.calls = {fused}}, "wants the result of tile"},
        {Fault::done_wait_dropped, {.calls = {two_shot(1, everybody), exported(1, some)}}, "wants the result of tile"},
        {Fault::direct_done_wait_dropped, {.calls = {direct, direct}}, "returns success without"},
        {Fault::direct_done_wait_dropped,
         {.calls = {exported(1, everybody), exported(1, everybody)}},
         "returns success without"},
        {Fault::old_done_is_an_error, {.calls = {two_shot(3), one_shot(3), two_shot(3)}}, "out of step"},
        {Fault::entry_wait_of_one_dropped, {.ranks = 3, .calls = {one_shot()}}, "has no memory"},
        {Fault::exports_without_agreement, {.calls = {direct, one_shot()}, .mapped = no}, "decides otherwise"},
        {Fault::exports_without_agreement, {.ranks = 3, .calls = {partly}, .mapped = no}, "decides otherwise"},
        {Fault::exporters_do_not_stage, {.calls = {direct}, .mapped = no}, "finds nothing"},
        {Fault::exporters_do_not_stage, {.calls = {exported(1, everybody)}, .mapped = no}, "finds nothing"},
        {Fault::exporters_do_not_stage, {.ranks = 3, .calls = {partly}, .mapped = no}, "finds nothing"},
        {Fault::round_of_exporters_only, {.calls = {partly}, .mapped = yes}, "decides otherwise"},
        {Fault::round_of_exporters_only, {.calls = {exported(2, some)}, .mapped = yes}, "decides otherwise"},
        {Fault::growth_after_staging, {.calls = {one_shot_inline(), one_shot()}}, "has no memory"},
        {Fault::leaves_silently, {.calls = {one_shot()}, .may_give_up = true}, "abort word is not set"},
        {Fault::leaves_silently, {.ranks = 3, .calls = {two_shot(1)}, .may_give_up = true}, "waits forever"},
        {Fault::abort_not_watched, {.calls = {one_shot()}, .may_die = true}, "waits forever"},
        {Fault::buffers_without_look, {.calls = {direct, direct}, .may_give_up = true}, "no longer in call"},
        {Fault::leaves_without_drain, {.calls = {direct, direct}, .may_give_up = true}, "no longer in call"},
        {Fault::leaves_without_drain, {.ranks = 3, .calls = {direct, direct}, .may_die = true}, "no longer in call"},
        {Fault::neither_look_nor_drain, {.calls = {partly, partly}, .may_give_up = true}, "has read an input"},
        {Fault::owners_stage_at_once, {.calls = {two_level(5)}}, "wants the result of tile 0"},
        {Fault::owners_stage_early, {.slots = 3, .calls = {two_level(5)}}, "wants the result of tile"},
        {Fault::result_before_sum, {.calls = {two_level(1)}}, "before it is summed"},
        {Fault::done_before_last_copies, {.slots = 3, .calls = {two_level(5)}}, "wants the result of tile"},
        {Fault::done_before_last_copies,
         {.in_order_slots = 2, .calls = {pipelined(3), one_shot()}},
         "wants the result of tile"},
        {Fault::done_before_result, {.ranks = 3, .calls = {two_level(1, 1)}}, "wants the result of tile 0"},
        {Fault::done_wait_dropped, {.calls = {two_level(1)}}, "wants the result of tile 0"},
        {Fault::entry_wait_of_one_dropped, {.ranks = 3, .calls = {two_level(1, 1)}}, "has no memory"},
        {Fault::fingerprint_ignored,
         {.calls = {one_shot()}, .odd_rank = 1, .odd_index = 0, .odd_call = one_shot_inline()},
         ""},
        {Fault::fingerprint_ignored,
         {.ranks = 3, .calls = {two_shot(2)}, .odd_rank = 1, .odd_index = 0, .odd_call = two_shot(1)},
         ""},
    };
    for (Row row : rows) {
        INFO(row.scenario.text());
        CHECK(explore(row.scenario).broken == "");
        row.scenario.fault = row.fault;
        const Report report = explore(row.scenario);
        fmt::print("{}\n{}\n", row.scenario.text(), report.text());
        INFO(name_of(row.fault));
        CHECK(report.broken != "");
        CHECK(report.broken.find(row.finding) != std::string::npos);
        CHECK(report.trace.size() > 3);
    }
}

}  // namespace weft::internal::model
