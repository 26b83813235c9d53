// Operations in a row over one flag block and one set of connections.
#include <iterator>
#include <random>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static Status check_cases(int ranks, const std::vector<Case>& cases, const CheckOptions& options = {}) {
    std::vector<CheckedOperation> operations;
    for (const Case& one : cases) operations.push_back(operation_of(one, ranks));
    return check(ranks, operations, options);
}

static std::string text_of(const std::vector<Case>& cases) {
    std::string text;
    for (const Case& one : cases) text += "\n  " + one.text();
    return text;
}

// The calls that these hosts allow. `few`: each algorithm once, except for all-reduce.
static std::vector<Case> all_cases(std::initializer_list<int> tile_counts, Hosts hosts, int ranks, bool few) {
    std::vector<Case> all;
    for (const Algorithm& row : registry::algorithms())
        for (Case one : cases_of(row, 2, ranks))
            for (int tiles : tile_counts) {
                if (one.hosts != (anywhere(row, ranks) ? Hosts::one : hosts)) continue;
                if (one.way == Way::direct && tiles != 1) continue;
                const bool plain = one.collective == Collective::all_to_all || one.place == InPlaceMode::mixed;
                if (few && one.collective != Collective::all_reduce &&
                    (!plain || one.channels > 1 || (one.root >= 0 && one.root != ranks - 1)))
                    continue;
                one.tiles = tiles;
                one.hosts = hosts;
                all.push_back(one);
            }
    return all;
}

TEST_CASE("any two operations may follow each other", "[schedule]") {
    const bool sample = small() && sanitized;
    std::mt19937 random(sample ? seed() : 0);
    for (auto [ranks, hosts] : {std::pair{2, Hosts::one}, {3, Hosts::one}, {4, Hosts::two}, {3, Hosts::lonely}}) {
        const std::vector<Case> all = all_cases({1, 3}, hosts, ranks, true);
        for (const Case& first : all)
            for (const Case& second : all) {
                if (sample && random() % 32 != 0) continue;
                const Status status = check_cases(ranks, {first, second, first});
                INFO(ranks << " ranks:" << text_of({first, second, first}) << "\n" << status.sentence());
                REQUIRE(status.ok());
            }
    }
}

TEST_CASE("long sequences of any operations are right", "[schedule]") {
    std::mt19937 random(seed());
    for (int round = 0; round < (sanitized ? 30 : 400); ++round) {
        const int ranks = int(random() % 12) + 1;
        const std::vector<Case> all = all_cases({1, 2, 3, 5}, all_hosts[random() % std::size(all_hosts)], ranks, false);
        std::vector<Case> cases;
        for (int i = 0; i < 8; ++i) cases.push_back(all[random() % all.size()]);
        const Status status = check_cases(ranks, cases);
        INFO("seed " << seed() << ", " << ranks << " ranks:" << text_of(cases) << "\n" << status.sentence());
        REQUIRE(status.ok());
    }
}

TEST_CASE("a flag block needs two slots for plain operations, three for pipelined ones", "[schedule]") {
    for (int ranks : {2, 3, 4, 7}) {
        for (const char* algorithm : {"one_shot", "two_shot"}) {
            for (const Way way : {Way::plain, Way::mixed}) {
                const std::vector<Case> plain(3, Case{.algorithm = algorithm, .way = way, .tiles = 3});
                CHECK(check_cases(ranks, plain, {.flag_slots = 2}).ok());
                const Status status = check_cases(ranks, plain, {.flag_slots = 1});
                INFO(status.sentence());
                CHECK(!status.ok());
            }
        }
        const std::vector<Case> pipelined(2, Case{.algorithm = "two_shot", .way = Way::pipelined, .tiles = 5});
        CHECK(check_cases(ranks, pipelined, {.flag_slots = 3}).ok());
        const Status status = check_cases(ranks, pipelined, {.flag_slots = 2});
        INFO(status.sentence());
        CHECK_ERROR(status, "schedule.race");
    }
}
