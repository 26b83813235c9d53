// zero_copy_test.cpp: messages that carry the address of their bytes, in every algorithm of every collective. Receivers
// read memory of the process, the sender's arena, or by CMA; in place and not; ranks come at any time. Readers come
// late, so a send buffer that changes too early shows as other bits than the interpreter's.
#include "src/schedule/stable_sends.hpp"
#include "tests/executor/checked_runs.hpp"
#include "tests/executor/wild_inputs.hpp"

namespace weft::internal::test {
namespace {

Call random_call(const WildInputs& wild, int n, const Algorithm& row, std::mt19937& random) {
    Call call;
    call.algorithm = &row;
    if (facts_of(row.collective).rooted) call.root = int(random() % size_t(n));
    if (std::string_view(row.name) == "ring" && row.collective == Collective::all_reduce)
        call.channels = 1 + int(random() % 2);
    call.type = weftDataType_t(random() % weftNumTypes);
    call.op = facts_of(row.collective).reduces ? any_reduction_of(call.type, random) : int(weftSum);
    call.tile_bytes = 64 * (1 + random() % 20);
    // Also so little that it lies in a line of the flag block, or in the header of a slot.
    const size_t count = random() % 3 == 0 ? random() % 12 : random() % 900;
    wild.fill(call, n, count, random);
    call.zero_copy = random() % 8 != 0;
    call.in_place = random_flags(n, random);
    call.from_arena = random_flags(n, random);
    if (row.collective == Collective::all_to_all) call.in_place = {};
    call.send_offset = random() % 2 ? 0 : random() % 64;
    call.receive_offset = random() % 2 ? 0 : random() % 64;
    call.stores = random() % 4 ? Stores::ordinary : Stores::streaming;
    return call;
}

void run_sequences(Driver driver, int length, std::mt19937& random) {
    const WildInputs wild(random);
    for (const int n : {2, 3, 4, 5, 8})
        for (const Reached reached : {Reached::threads, Reached::processes}) {
            LocalRanks ranks(n, reached);
            std::vector<Call> calls;
            for (int i = 0; i < length; ++i)
                for (const Algorithm& row : registry::algorithms())
                    if (!row.refusal({.ranks = n, .rank = 0}) && row.collective != Collective::barrier)
                        calls.push_back(random_call(wild, n, row, random));
            std::shuffle(calls.begin(), calls.end(), random);
            CAPTURE(n, int(reached), int(driver));
            check(ranks, calls, driver, random);
        }
}

}  // namespace

TEST_CASE("zero-copy messages of ranks that take turns in random order leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    run_sequences(Driver::turns, small() ? 1 : 8, random);
}

TEST_CASE("zero-copy messages with a thread a rank leave the interpreter's bits", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed() + 1);
    run_sequences(Driver::threads, small() ? 1 : 3, random);
}

// By hand: the sender is through with its part, but not with the call, until the receiver has read.
TEST_CASE("a zero-copy call ends when its buffers have been read", "[executor]") {
    WEFT_PRINT_SEED();
    std::mt19937 random(seed());
    const WildInputs wild(random);
    for (const bool zero_copy : {false, true})
        for (const Reached reached : {Reached::threads, Reached::processes}) {
            LocalRanks ranks(2, reached);
            Call call;
            call.algorithm = registry::find_algorithm("binomial_tree", Collective::broadcast);
            call.root = 0;
            call.tile_bytes = 4096;
            call.zero_copy = zero_copy;
            wild.fill(call, 2, 100, random);
            CHECK(ranks.ends_alone(call, 0) == !zero_copy);
        }
}

}  // namespace weft::internal::test
