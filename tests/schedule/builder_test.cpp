// The builder and what algorithms/ says with it.
#include "src/schedule/builder.hpp"

#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft;

static Builder small_builder() {
    return {"x", Collective::all_reduce, {.ranks = 4, .rank = 0}, {.chunks = 4, .fifo_depth = 1}};
}

TEST_CASE("a loop of no iterations emits nothing, and neither do its modifiers", "[schedule]") {
    Builder builder = small_builder();
    BlockBuilder block = builder.block({.source = 1, .target = 1});
    block.send({0});
    block.loop(0).recv_reduce_copy({1}).finish().from(Buffer::output).to(Buffer::slot).tile(3).after({0, 0});
    block.recv({2});
    CHECK(write_text(builder.finish()) ==
          "schedule x all_reduce rank 0 of 4 channels 1 chunks 4 fifo 1\n"
          "block channel 0 source 1 target 1\n"
          "  0 send input[0]\n"
          "  1 recv [2] -> output\n");
}

TEST_CASE("a loop holds for one instruction, whose operands move", "[schedule]") {
    Builder builder = small_builder();
    BlockBuilder block = builder.block({.target = 1});
    block.loop(3).send(Chunk{0, -1, 4}.then(-1));
    block.send(Chunk{0, -1, 4}.then(-1));
    const Schedule schedule = builder.finish();
    const auto& instructions = schedule.blocks[0].instructions;
    CHECK(instructions[0].repeat == 3);
    CHECK(instructions[0].chunk == Index{0, 3, 4, -1});
    CHECK(instructions[0].chunk.at(2) == 1);
    CHECK(instructions[1].repeat == 1);
    CHECK(instructions[1].chunk == Index{3, 0, 1, 0});
}

TEST_CASE("steps of other blocks can be waited for while blocks are added", "[schedule]") {
    Builder builder = small_builder();
    BlockBuilder first = builder.block({.source = 1});
    Step received = first.recv({0});
    for (int channel = 0; channel < 20; ++channel) builder.block({});
    builder.block({.target = 1}).send({0}).from(Buffer::output).after(received);
    const Schedule schedule = builder.finish();
    CHECK(schedule.blocks.back().instructions[0].after == Dependency{0, 0});
    CHECK(validate(schedule).ok());
}

TEST_CASE("predictions are positive, grow with the message, and prefer the algorithm measured best", "[schedule]") {
    auto best = [](int ranks, int ranks_per_core, size_t bytes) {
        const LinkCosts costs{.ranks_per_core = ranks_per_core};
        std::string name;
        double least = 1e300;
        for (const Algorithm& row : registry::algorithms()) {
            if (row.refusal({.ranks = ranks, .rank = 0})) continue;
            const double us = row.predict_us({.ranks = ranks, .rank = 0}, costs, bytes);
            CHECK(us > 0);
            CHECK(us <= row.predict_us({.ranks = ranks, .rank = 0}, costs, 2 * bytes));
            if (us < least) least = us, name = row.name;
        }
        return name;
    };
    // docs: one-shot up to 16 KiB on two ranks and 4 KiB on more, two-shot from there.
    CHECK(best(2, 1, 8) == "one_shot");
    CHECK(best(2, 1, 16 << 10) == "one_shot");
    CHECK(best(4, 2, 4 << 10) == "one_shot");
    CHECK(best(4, 2, 64 << 10) == "two_shot");
    CHECK(best(8, 4, 64 << 10) == "two_shot");
    CHECK(best(2, 1, 64 << 20) == "two_shot");
    CHECK(best(8, 4, 64 << 20) == "two_shot");
}
