// stable_sends_test.cpp: the sends of the algorithms that may pass an address, and the others.
#include "src/schedule/stable_sends.hpp"

#include "src/registry.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;

namespace {

// A rank's sending instructions: those that may use zero-copy, and all.
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
    // Partial sums exist in slots alone; the first chunk is input, which in place lies where nothing comes.
    CHECK(zero_copy_sends("ring", Collective::reduce_scatter, 4, 1) == Count{1, 2});
    // The scratch of one tile is that of the next.
    CHECK(zero_copy_sends("binomial_tree", Collective::reduce, 4, 2) == Count{0, 1});
    CHECK(zero_copy_sends("binomial_tree", Collective::scatter, 8, 4).first == 0);
    CHECK(zero_copy_sends("one_shot", Collective::all_gather, 4, 1) == Count{0, 0});
}
