// regret_test.cpp: the fields read from an explanation, and the distance of a choice from the best.
#include "perf/regret.hpp"

#include "tests/catch.hpp"

using namespace perf;
using Catch::Contains;

namespace {

Row row_of(size_t bytes) {
    return {bytes, bytes / 4, find_element("float"), find_reduction("sum"), -1, {}, {}, "", ""};
}

}  // namespace

TEST_CASE("candidates are those that can serve") {
    const Candidates found = candidates_of(
        "all_reduce of 2 float, sum (8 bytes) on 2 ranks, 1 a core\n"
        "candidate one_shot: 0.12 us predicted; everybody reads everything: one wait\n"
        "candidate mine: the user's, before Weft's own; of a file\n"
        "candidate ring: 3.00 us measured, out: excluded by WEFT_ALGO; 2(N-1)/N of the buffer\n"
        "chosen: one_shot over shm+tcp, least predicted time");
    CHECK(found.names == std::vector<std::string>{"one_shot", "mine"});
    CHECK(found.chosen == "one_shot");
    CHECK(found.transport == "shm+tcp");
    CHECK(candidates_of("").names.empty());
    CHECK(candidates_of("").chosen == "?");
}

TEST_CASE("a tenth of the times are not above the lower decile") {
    CHECK(lower_decile({3}) == 3);
    std::vector<double> times;
    for (int i = 1; i <= 10; ++i) times.push_back(i);
    CHECK(lower_decile(times) == 1);
    times.push_back(11);
    CHECK(lower_decile(times) == 2);
}

TEST_CASE("a line shows the choice, the best and every candidate") {
    const Candidates candidates{{"ring", "tree"}, "ring", "shm"};
    const RegretRow row = regret_of(row_of(8), candidates, {{6, 7}, {4, 9}}, 2);
    CHECK(row.chosen.us == 3);
    CHECK(row.best.algorithm == "tree");
    CHECK(row.best.us == 2);
    CHECK(row.ratio() == 1.5);
    CHECK_THAT(regret_text(row), Contains("  ring        3.00 ") && Contains("  tree        2.00   1.500 ") &&
                                     Contains("  ring 3.00 tree 2.00\n"));
}

TEST_CASE("regret is the geometric mean of the ratios and the worst of them") {
    const Candidates candidates{{"ring", "tree"}, "ring", "shm"};
    const std::vector<RegretRow> rows = {regret_of(row_of(8), candidates, {{1}, {1}}, 1),
                                         regret_of(row_of(64), candidates, {{4}, {1}}, 1)};
    const Regret regret = summarize(rows);
    CHECK(regret.mean_percent == Approx(100));
    CHECK(regret.worst_percent == Approx(300));
    CHECK_THAT(regret_footer(regret), Contains("mean 100.0 % | worst 300.0 % (64 bytes: ring chosen, tree best)"));
}
