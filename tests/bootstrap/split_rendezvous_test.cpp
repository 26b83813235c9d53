// split_rendezvous_test.cpp: ranks of one host that make a communicator from another one, some of which may not open the
// segment of the first.
#include "src/rendezvous/split_rendezvous.hpp"

#include <thread>

#include "tests/catch.hpp"
#include "tests/error.hpp"

using namespace weft::internal;

namespace {

RendezvousOptions options() {
    RendezvousOptions options;
    options.timeout_ms = 60'000;
    options.host = *host_identity();
    return options;
}

// Drives a rank's rendezvous to its end; the result is the rank's segment.
Result<std::shared_ptr<Segment>> enter(Rendezvous& rendezvous) {
    for (;;) {
        auto met = rendezvous.advance();
        if (!met) return met.take_status();
        if (*met) return rendezvous.segment();
        rendezvous.wait();
    }
}

// A communicator whose ranks have all joined.
std::shared_ptr<Segment> parent_of(int ranks) {
    auto segment = Segment::create(ranks);
    REQUIRE(segment);
    for (int rank = 0; rank < ranks; ++rank) REQUIRE(claim_row(**segment, rank, ranks, options()));
    return *segment;
}

}  // namespace

TEST_CASE("if a rank may not open the first one's segment, all ranks use an id", "[split_rendezvous]") {
    const auto parent = parent_of(4);
    for (const auto& refusers : {std::vector<int>{}, {1}, {2}, {1, 2}}) {
        INFO("refused by " << refusers.size());
        static uint64_t number = 0;
        const Child child{++number, {3, 0, 2}};
        std::vector<std::shared_ptr<Segment>> groups(3);
        std::vector<std::string> wrong(3);
        std::vector<std::thread> threads;
        for (int rank = 0; rank < 3; ++rank)
            threads.emplace_back([&, rank] {
                const bool refuses = std::find(refusers.begin(), refusers.end(), rank) != refusers.end();
                SplitRendezvous split_rendezvous(parent, child, rank, options(), refuses);
                auto entered = enter(split_rendezvous);
                if (entered) groups[size_t(rank)] = *entered;
                wrong[size_t(rank)] = entered ? "" : entered.status().sentence();
            });
        for (std::thread& thread : threads) thread.join();
        for (int rank = 0; rank < 3; ++rank) {
            REQUIRE(wrong[size_t(rank)] == "");
            CHECK(groups[size_t(rank)] == groups[0]);  // one mapping for each process
            CHECK(groups[0]->row(rank).state == RankState::joined);
        }
        CHECK(groups[0]->ranks() == 3);
        CHECK(groups[0]->one_host());
        CHECK(groups[0]->memory().inode() != parent->memory().inode());
    }
}

TEST_CASE("a rank that comes after the first rank has given up fails at once", "[split_rendezvous]") {
    const auto parent = parent_of(3);
    RendezvousOptions impatient = options();
    impatient.timeout_ms = 1;
    auto first = std::make_unique<SplitRendezvous>(parent, Child{7, {0, 1, 2}}, 0, impatient);
    const auto late = enter(*first);
    first.reset();  // its segment too
    REQUIRE(!late);
    CHECK_ERROR(late, "init.rank-missing", 1, 0);
    CHECK(late.status().sentence().find("ranks 1 to 2 ") != std::string::npos);
    SplitRendezvous second(parent, {7, {0, 1, 2}}, 1, options());
    CHECK_ERROR(enter(second), "rank.failed", 0, 1);
}

TEST_CASE("a rank that tries again before the first rank enters the next segment", "[split_rendezvous]") {
    const auto parent = parent_of(3);
    RendezvousOptions impatient = options();
    impatient.timeout_ms = 100;
    const Child child{9, {0, 1, 2}, true};
    const auto try_in_threads = [&](const RendezvousOptions& patience, std::vector<int> ranks, SplitRendezvous* begun) {
        std::vector<std::string> wrong(3);
        std::vector<std::thread> threads;
        for (const int rank : ranks)
            threads.emplace_back([&, rank] {
                SplitRendezvous own(parent, child, rank, patience, true);
                auto entered = enter(begun && rank == 1 ? *begun : own);
                if (entered) return;
                wrong[size_t(rank)] = entered.status().sentence();
                say_given_up(*parent, child, rank);
            });
        for (std::thread& thread : threads) thread.join();
        return wrong;
    };
    // Rank 1 cannot open the segment, so they use an id; rank 2 does not come.
    const auto first = try_in_threads(impatient, {0, 1}, nullptr);
    CHECK(first[0] != "");
    CHECK(first[1] != "");
    SplitRendezvous early(parent, child, 1, options(), true);
    for (int step = 0; step < 3; ++step) CHECK_FALSE(*early.advance());
    for (const std::string& wrong : try_in_threads(options(), {0, 1, 2}, &early)) CHECK(wrong == "");
}
