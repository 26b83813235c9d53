// stable_sends_test.cpp: which sends of the algorithms may be zero-copy, and which receives may come early.
#include "src/schedule/stable_sends.hpp"

#include "src/registry.hpp"
#include "src/schedule/early_receives.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;

namespace {

// Of a rank's sends: the number that may be zero-copy, and the number of all.
std::pair<int, int> zero_copy_sends(const char* name, Collective collective, int ranks, int rank) {
    const Parameters parameters{.channels = 1, .root = facts_of(collective).rooted ? 0 : -1};
    const Schedule schedule =
        registry::find_algorithm(name, collective)->schedule({.ranks = ranks, .rank = rank}, parameters);
    const auto stable = find_stable_sends(schedule);
    std::pair<int, int> found{0, 0};
    for (size_t block = 0; block < schedule.blocks.size(); ++block)
        for (size_t step = 0; step < schedule.blocks[block].instructions.size(); ++step) {
            const Opcode opcode = schedule.blocks[block].instructions[step].opcode;
            const bool is_stable = !stable.empty() && stable[block][step];
            const bool sending = kind_of(opcode) == OpcodeKind::connection && sends(opcode);
            if (is_stable) CHECK(sending);
            found.first += is_stable;
            found.second += sending;
        }
    return found;
}

using Count = std::pair<int, int>;

// Of a rank's receives that do not reduce: `i` if it may come early, `o` if only out of place, otherwise `-`.
std::string early_receives(const char* name, Collective collective, int ranks, int rank) {
    const Parameters parameters{.channels = 1, .root = facts_of(collective).rooted ? 0 : -1};
    const Schedule schedule =
        registry::find_algorithm(name, collective)->schedule({.ranks = ranks, .rank = rank}, parameters);
    const EarlyReceives early = find_early_receives(schedule);
    std::string found;
    for (size_t block = 0; block < schedule.blocks.size(); ++block)
        for (size_t step = 0; step < schedule.blocks[block].instructions.size(); ++step) {
            const Opcode opcode = schedule.blocks[block].instructions[step].opcode;
            const Early when = early.empty() ? Early::no : early[block][step];
            if (opcode == Opcode::recv || opcode == Opcode::recv_copy_send)
                found += when == Early::always ? 'i' : when == Early::out_of_place ? 'o' : '-';
            else
                CHECK(when == Early::no);
        }
    return found;
}

}  // namespace

TEST_CASE("data that is only read may be sent by zero-copy", "[schedule]") {
    CHECK(zero_copy_sends("all_pairs", Collective::all_gather, 4, 1) == Count{3, 3});
    CHECK(zero_copy_sends("all_pairs", Collective::all_to_all, 4, 1) == Count{3, 3});
    CHECK(zero_copy_sends("all_pairs", Collective::reduce_scatter, 4, 1) == Count{3, 3});
    CHECK(zero_copy_sends("ring", Collective::all_gather, 4, 1) == Count{2, 2});
    CHECK(zero_copy_sends("binomial_tree", Collective::broadcast, 4, 0) == Count{2, 2});
    CHECK(zero_copy_sends("binomial_tree", Collective::broadcast, 4, 2) ==
          Count{1, 1});                                                                // receives it, and passes it on
    CHECK(zero_copy_sends("binomial_tree", Collective::reduce, 4, 1) == Count{1, 1});  // a leaf's own
    CHECK(zero_copy_sends("linear", Collective::scatter, 4, 0) == Count{3, 3});
}

TEST_CASE("data that is overwritten while a peer may read it is not sent by zero-copy", "[schedule]") {
    // In place a finished chunk comes where its contribution lay; and a sum is sent from where the next one is made.
    CHECK(zero_copy_sends("all_pairs", Collective::all_reduce, 4, 1) == Count{0, 6});
    // With two ranks the sum is made by one instruction.
    CHECK(zero_copy_sends("all_pairs", Collective::all_reduce, 2, 1) == Count{1, 2});
    // Partial sums are only in slots. The first chunk is input, which nothing overwrites in place.
    CHECK(zero_copy_sends("ring", Collective::reduce_scatter, 4, 1) == Count{1, 2});
    // The scratch of one tile is that of the next.
    CHECK(zero_copy_sends("binomial_tree", Collective::reduce, 4, 2) == Count{0, 1});
    CHECK(zero_copy_sends("binomial_tree", Collective::scatter, 8, 4).first == 0);
    CHECK(zero_copy_sends("one_shot", Collective::all_gather, 4, 1) == Count{0, 0});
}

TEST_CASE("data may come early where no step of the rank reads or writes before", "[schedule]") {
    CHECK(early_receives("ring", Collective::all_gather, 4, 1) == "ii");
    CHECK(early_receives("binomial_tree", Collective::broadcast, 4, 2) == "i");
    // The result of an all-reduce comes after the rank's only read of its own contribution.
    CHECK(early_receives("ring", Collective::all_reduce, 4, 1) == "ii");
    CHECK(early_receives("all_pairs", Collective::all_reduce, 4, 1) == "iii");
    // In place, a part of the input lies where another rank's part comes.
    CHECK(early_receives("all_pairs", Collective::all_to_all, 4, 1) == "ooo");
    // Scratch, and outputs that are written several times.
    CHECK(early_receives("binomial_tree", Collective::scatter, 8, 4) == "-");
    CHECK(early_receives("one_shot", Collective::all_gather, 4, 1) == "");
}
