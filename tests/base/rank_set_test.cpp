// rank_set_test.cpp: the set of ranks against std::set.
#include "src/base/rank_set.hpp"

#include <random>
#include <set>
#include <vector>

#include "tests/amount.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {
namespace {

std::vector<int> content(const RankSet& set) {
    std::vector<int> ranks;
    set.for_each([&](int rank) { ranks.push_back(rank); });
    return ranks;
}

}  // namespace

TEST_CASE("a full set has all ranks but the one left out, in order", "[rank_set]") {
    for (const int ranks : {1, 2, 63, 64, 65, 127, 128, 129, 1023, 1024})
        for (const int without : {0, ranks / 2, ranks - 1}) {
            RankSet set{};  // GCC cannot see that words beyond words_ are never read
            set.fill(ranks, without);
            std::vector<int> expected;
            for (int rank = 0; rank < ranks; ++rank)
                if (rank != without) expected.push_back(rank);
            CHECK(content(set) == expected);
            CHECK(set.empty() == expected.empty());
            CHECK(!set.contains(without));
        }
}

TEST_CASE("insertions and erasures in any order give the same set as a set of integers", "[rank_set]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    RankSet set{};  // GCC cannot see that words beyond words_ are never read
    std::set<int> expected;
    for (int i = 0; i < 20000; ++i) {
        const int rank = int(random() % (i % 3 ? 1024 : 100));
        if (random() % 2) {
            set.insert(rank);
            expected.insert(rank);
        } else if (expected.count(rank)) {
            set.erase(rank);
            expected.erase(rank);
        }
        REQUIRE(set.contains(rank) == (expected.count(rank) > 0));
        REQUIRE(set.empty() == expected.empty());
        if (i % 100 == 0) REQUIRE(content(set) == std::vector<int>(expected.begin(), expected.end()));
        if (random() % 1000 == 0) {
            set.clear();
            expected.clear();
        }
    }
}

TEST_CASE("a union has the ranks of both sets; a visitor may erase the visited rank", "[rank_set]") {
    RankSet first{}, second{};
    first.insert(3);
    second.insert(700);
    second.insert(3);
    first.insert(second);
    CHECK(content(first) == std::vector<int>{3, 700});
    first.for_each([&](int rank) { first.erase(rank); });
    CHECK(first.empty());
    CHECK(!first.contains(1023));
}

}  // namespace weft::internal::test
