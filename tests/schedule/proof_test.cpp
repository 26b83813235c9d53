// Every algorithm, in every way it can run, is correct for every number of ranks.
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

// The number of proved ways of a test, so that an empty table is noticed.
static int proved_ways;

// Correct, and combined in rank order if and only if the row says so.
static void prove(const Algorithm& row, const Case& one, int ranks) {
    const CheckedOperation operation = operation_of(one, ranks);
    Proved proved;
    const Status status = check(ranks, {&operation, 1}, {}, &proved);
    const bool in_rank_order = ranks == 1 || !facts_of(row.collective).reduces || row.sums == Sums::in_rank_order;
    ++proved_ways;
    if (status && proved.in_rank_order == in_rank_order) return;
    INFO(one.text() << ", " << ranks << " ranks: " << status.sentence());
    REQUIRE(status.ok());
    REQUIRE(proved.in_rank_order == in_rank_order);
}

TEST_CASE("every algorithm is right, and combines in the order that its row says, for every number of ranks up to 128",
          "[schedule][numbers]") {
    proved_ways = 0;
    for (const Algorithm& row : registry::algorithms())
        for (int ranks = 1; ranks <= (sanitized ? 12 : 128); ++ranks) {
            if (small() && ranks > 20 && ranks % 32 > 1 && ranks != 127) continue;
            for (Case one : cases_of(row, 3, ranks)) {
                // Algorithms with connections between all ranks: a sample of the larger numbers, because 128 ranks have
                // 16,000.
                if (row.on_demand && ranks > 32 && ranks % 24 != 0) continue;
                // Above 32 ranks, the places alternate with the numbers of ranks, except for all-reduce on one host.
                const bool all_places =
                    one.collective == Collective::all_to_all ||
                    (one.collective == Collective::all_reduce && one.hosts == Hosts::one && !small());
                if (ranks > 32 && !all_places && one.place != in_place_modes[ranks % 3]) continue;
                // How the flag block's slots are used again does not depend on the number of ranks.
                if (ranks > 32 && ranks % 32 != 0) one.tiles = std::min(one.tiles, 2);
                prove(row, one, ranks);
            }
        }
    CHECK(proved_ways > (sanitized ? 1'000 : small() ? 2'000 : 20'000));
}

TEST_CASE("every algorithm is right for larger numbers of ranks", "[schedule][large]") {
    if (sanitized) return;
    proved_ways = 0;
    for (const Algorithm& row : registry::algorithms()) {
        for (int ranks : {129, 255, 256, 257, 511, 512, 777, 1000, 1024}) {
            if (small() && ranks != 129 && ranks != 256 && ranks != 1000) continue;
            int turn = 0;
            for (Case one : cases_of(row, ranks < 512 ? 3 : 1, ranks)) {
                // A sample of the collectives but all-reduce; a rank that is connected to all has too many connections.
                if (one.collective != Collective::all_reduce &&
                    ((ranks != 129 && ranks != 512 && ranks != 1000) || one.hosts != Hosts::one || one.root > 0 ||
                     (ranks > 300 && one.algorithm == "all_pairs") || one.algorithm == "rank_order" ||
                     (ranks > 512 && one.root < 0)))
                    continue;
                if (one.algorithm == "rank_order" && ranks > 129) continue;
                // Flag blocks of hundreds of ranks are slow to prove, and two-shot covers them.
                if (ranks > 300 && ranks != 512 && (one.hosts == Hosts::two || one.hosts == Hosts::lonely)) continue;
                // Above 300 ranks, each way takes one of the places in turn, and ways alternate with the numbers of
                // ranks.
                if (ranks > 300 && one.collective != Collective::all_to_all && one.place != in_place_modes[turn++ % 3])
                    continue;
                if (ranks > 300 && ranks < 1024 && (int(one.way) + int(one.hosts) + ranks) % 2 != 0) continue;
                one.tiles = one.way == Way::pipelined ? 2 : 1;
                prove(row, one, ranks);
            }
        }
    }
    CHECK(proved_ways > (small() ? 150 : 500));
}

TEST_CASE("forms of every collective inside hosts and between them are right for larger numbers of ranks",
          "[schedule][large]") {
    if (sanitized) return;
    proved_ways = 0;
    int turn = 0;
    for (const Algorithm& row : registry::algorithms()) {
        // The case above has those of all-reduce.
        if (!made_of_two(row.name) || row.collective == Collective::all_reduce) continue;
        const int before = proved_ways;
        for (const int ranks : {256, 1000, 1024}) {
            if (small() && ranks != 256) continue;
            const bool rooted = facts_of(row.collective).rooted;
            for (const Hosts hosts : {Hosts::two, Hosts::pairs, Hosts::rails}) {
                // Some of these need hosts of one size.
                if (ranks > 256 && (ranks == 1024) != (hosts == Hosts::rails)) continue;
                for (const int root : rooted ? std::vector<int>{0, ranks / 2 + 1} : std::vector<int>{-1}) {
                    if (row.refusal({ranks, 0, hosts_of(hosts, ranks)})) continue;
                    const InPlaceMode place =
                        row.collective == Collective::all_to_all ? InPlaceMode::out : in_place_modes[turn++ % 3];
                    prove(row, {row.name, Way::plain, 1, place, 1, hosts, row.collective, root}, ranks);
                }
            }
        }
        INFO(name_of(row.collective) << " by " << row.name);
        CHECK(proved_ways > before);
    }
    CHECK(proved_ways > (small() ? 45 : 90));
}

TEST_CASE("chunks that are empty are skipped on both ends, wherever they lie", "[schedule]") {
    for (const Algorithm& row : registry::algorithms()) {
        for (int ranks : {2, 3, 4, 5, 8, 13}) {
            if (small() && ranks > (sanitized ? 4 : 8)) continue;
            for (const Case& one : cases_of(row, 2, ranks)) {
                for (size_t lines = 1; lines <= size_t(2 * ranks); ++lines) {
                    CheckedOperation operation = operation_of(one, ranks);
                    operation.tile_bytes = 64 * (2 * size_t(ranks));
                    operation.last_tile_bytes = 64 * lines - 60;
                    const Status status = check(ranks, {&operation, 1});
                    INFO(one.text() << ", " << ranks << " ranks, " << lines << " lines: " << status.sentence());
                    REQUIRE(status.ok());
                }
            }
        }
    }
}

TEST_CASE("a ring needs two slots a connection, and no more", "[schedule]") {
    for (int ranks = 2; ranks <= 16; ++ranks) {
        CheckedOperation operation = operation_of({.algorithm = "ring", .tiles = 3}, ranks);
        CHECK(operation.schedule(0).fifo_depth == 2);
        CHECK(check(ranks, {&operation, 1}, {.fifo_depth = 2}).ok());
        const Status status = check(ranks, {&operation, 1}, {.fifo_depth = 1});
        CHECK(status.sentence().find("deadlock: operation 0, rank 0, block 0, step 1") == 0);
        CHECK(status.sentence().find("waits for a free slot to rank 1 (1 of 1 are full)") != std::string::npos);
    }
}
