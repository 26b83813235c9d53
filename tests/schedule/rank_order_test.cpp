// Algorithms that combine in rank order; proof_test.cpp checks the claims of their rows.
#include "algorithms/algorithms.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

TEST_CASE("a row that combines nothing says nothing of the order", "[schedule]") {
    for (const Algorithm& row : registry::algorithms())
        if (!facts_of(row.collective).reduces) CHECK(row.sums == Sums::as_they_come);
}

TEST_CASE("some algorithm combines in rank order for every layout of up to 96 ranks a host", "[schedule]") {
    for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter})
        for (int ranks = 1; ranks <= 128; ++ranks)
            for (const Hosts hosts : all_hosts) {
                Layout layout{ranks, 0, hosts_of(hosts, ranks)};
                if (layout.host_count() > 1 && too_many_of_a_host(layout)) continue;
                const auto rows = registry::algorithms();
                INFO(name_of(collective) << " on " << ranks << " ranks");
                CHECK(std::any_of(rows.begin(), rows.end(), [&](const Algorithm& row) {
                    return row.collective == collective && row.sums == Sums::in_rank_order && !row.refusal(layout);
                }));
            }
}

// A reduction of scratch reads a cell of every other rank.
TEST_CASE("a sum of scratch wants a cell for each rank, all of them written", "[schedule]") {
    const auto rank_order = [](int rank, auto&& change) {
        const Algorithm* row = registry::find_algorithm("rank_order", Collective::reduce_scatter);
        Schedule schedule = row->schedule({3, rank}, {});
        change(schedule);
        return schedule;
    };
    const auto fault = [&](auto&& change) {
        CheckedOperation operation;
        operation.schedule = [&](int rank) { return rank_order(rank, change); };
        operation.runs = 2;
        return std::string(check(3, {&operation, 1}).sentence());
    };
    CHECK(fault([](Schedule&) {}).empty());
    CHECK(fault([](Schedule& schedule) { schedule.scratch = 2; }).find("it takes one for each of the 3 ranks") !=
          std::string::npos);
    // Two contributions in one cell: the other is empty.
    const auto other_cell = [](Schedule& schedule) {
        for (Block& block : schedule.blocks)
            for (Instruction& it : block.instructions)
                if (it.target_cell >= 0) it.target_cell = schedule.rank == 0 ? 1 : 0;
    };
    CHECK(!fault(other_cell).empty());
    // Data of the next tile would overwrite the operands of the sum.
    const auto no_gate = [](Schedule& schedule) {
        for (Block& block : schedule.blocks)
            for (Instruction& it : block.instructions)
                if (it.after.ago == 1) it.after = {};
    };
    CHECK(!fault(no_gate).empty());
}
