// The builder, and the schedules and predictions of algorithms/.
#include "src/schedule/builder.hpp"

#include "src/schedule/text.hpp"
#include "src/schedule/validate.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

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
    StepBuilder received = first.recv({0});
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
            if (us < least && row.collective == Collective::all_reduce) least = us, name = row.name;
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
    // The pieces of a message have the same cache distance as the whole: also around the size of the cache.
    for (int ranks : {2, 3, 4, 8, 16, 32})
        for (int ranks_per_core : {1, ranks / 2, ranks})
            for (size_t bytes = 256 << 10; bytes <= size_t(512) << 20; bytes = bytes * 5 / 4) {
                INFO(ranks << " ranks, " << ranks_per_core << " a core, " << bytes << " bytes");
                CHECK(best(ranks, ranks_per_core, bytes) == "two_shot");
            }
}

TEST_CASE("between hosts predictions grow with the message, and favour each algorithm in its domain", "[schedule]") {
    const LinkCosts costs{.net_us_per_byte = 1 / 125.0};  // 1 Gbit/s
    auto best = [&](int ranks, int hosts, size_t bytes) {
        const Layout layout{ranks, 0, hosts_in_blocks(ranks, hosts)};
        std::string name;
        double least = 1e300;
        for (const Algorithm& row : registry::algorithms()) {
            if (row.refusal(layout)) continue;
            const double us = row.predict_us(layout, costs, bytes);
            INFO(row.name << ", " << ranks << " ranks on " << hosts << " hosts, " << bytes << " bytes");
            CHECK(us > 0);
            CHECK(us <= row.predict_us(layout, costs, 2 * bytes));
            if (row.tile_bytes) CHECK(row.tile_bytes(layout, costs, bytes) % 64 == 0);
            if (us < least && row.collective == Collective::all_reduce) least = us, name = row.name;
        }
        return name;
    };
    for (int ranks : {1, 2, 3, 8, 16, 100})
        for (int hosts = 1; hosts <= std::min(ranks, 16); ++hosts)
            for (size_t bytes = 4; bytes <= size_t(1) << 28; bytes *= 4) best(ranks, hosts, bytes);
    CHECK(best(8, 8, 8) == "recursive_doubling");
    CHECK(best(8, 8, 32 << 10) == "all_pairs");
    CHECK(best(16, 16, 32 << 10) == "halving_doubling");
    CHECK(best(8, 8, 1 << 20) == "ring");
    // One rank's link is its host's: data that leaves a host once must not leave it with every rank.
    for (const int bytes : {8, 4 << 10, 256 << 10, 64 << 20}) {
        CHECK(made_of_two(best(8, 2, size_t(bytes))));
    }
}

TEST_CASE("a ring crosses each host's border once, and its ranks are all there", "[schedule]") {
    for (Hosts hosts : all_hosts)
        for (int ranks = 2; ranks <= 12; ++ranks) {
            int borders = 0, rank = 0;
            std::vector<bool> seen(size_t(ranks), false);
            for (int step = 0; step < ranks; ++step) {
                const Layout layout{ranks, rank, hosts_of(hosts, ranks)};
                const Ring ring = layout.ring(0);
                CHECK(!seen[size_t(rank)]);
                seen[size_t(rank)] = true;
                CHECK(ring.position == step);
                borders += layout.host_of(rank) != layout.host_of(ring.next);
                const Layout next{ranks, ring.next, hosts_of(hosts, ranks)};
                CHECK(next.ring(0).previous == rank);
                rank = ring.next;
            }
            const int count = Layout{ranks, 0, hosts_of(hosts, ranks)}.host_count();
            CHECK(borders == (count == 1 ? 0 : count));
        }
}

TEST_CASE("a span that ends within its modulus does not move, and one beyond it wraps round there", "[schedule]") {
    Builder builder("x", Collective::all_reduce, {.ranks = 4, .rank = 0}, {.chunks = 12, .fifo_depth = 1, .span = 3});
    BlockBuilder block = builder.block({.source = 1, .target = 1});
    block.span(3).send(Chunk{4, 1, 4});
    block.span(3).send(Chunk{4, 2, 4});
    block.span(0).send({0});
    block.recv({0});
    const Schedule schedule = builder.finish();
    CHECK(write_text(schedule) ==
          "schedule x all_reduce rank 0 of 4 channels 1 chunks 12 span 3 fifo 1\n"
          "block channel 0 source 1 target 1\n"
          "  0 send input[5 count 3]\n"
          "  1 send input[4 + (2) mod 4 count 3]\n"
          "  2 recv [0] -> output\n");
    const Index& turning = schedule.blocks[0].instructions[1].chunk;
    CHECK(turning.at(0, 0) == 6);
    CHECK(turning.at(0, 1) == 7);
    CHECK(turning.at(0, 2) == 4);
}

TEST_CASE("every message of the largest tile fits a slot, and tiles are the same on all ranks", "[schedule]") {
    constexpr size_t slot_bytes = 16 << 10;  // the longest message of leaders has 15 * 16 chunks
    for (const Algorithm& row : registry::algorithms())
        for (int ranks : {2, 3, 5, 8, 13, 31})
            for (const Case& one : cases_of(row, 2, ranks)) {
                if (sanitized && ranks > 8) continue;
                const size_t largest = largest_tile_bytes(schedule_of(one, ranks, 0), slot_bytes);
                size_t longest = 0;  // of all messages
                for (int rank = 0; rank < ranks; ++rank) {
                    const Schedule schedule = schedule_of(one, ranks, rank);
                    REQUIRE(largest_tile_bytes(schedule, slot_bytes) == largest);
                    for (const Block& block : schedule.blocks)
                        for (const Instruction& it : block.instructions)
                            for (const size_t tile : {largest, largest - 64, largest / 2 + 1}) {
                                if (kind_of(it.opcode) != OpcodeKind::connection) continue;
                                size_t bytes = 0;
                                for (int offset = 0; offset < it.count; ++offset) {
                                    const int chunk = it.chunk.at(0, offset);
                                    bytes += chunk_range(tile, schedule.chunks, chunk, 1, schedule.parts()).bytes;
                                }
                                longest = std::max(longest, bytes);
                            }
                }
                INFO(one.text() << ", " << ranks << " ranks");
                CHECK(longest <= slot_bytes);
                // The longest message is really sent: whole lines of each chunk, without waste.
                const Schedule first = schedule_of(one, ranks, 0);
                if (first.fifo_depth > 0) CHECK(longest > slot_bytes - 64 * size_t(std::max(8, first.span)));
            }
}

TEST_CASE("messages of any tile fit a slot, also those that go round", "[schedule]") {
    constexpr size_t slot_bytes = 256 << 10;
    size_t longest = 0;
    for (const Algorithm& row : registry::algorithms())
        for (const auto& [ranks, hosts] : {std::pair{21, 7}, {10, 5}, {15, 5}, {33, 11}}) {
            const Layout layout{ranks, 0, hosts_in_blocks(ranks, hosts)};
            if (row.refusal(layout)) continue;
            const int root = facts_of(row.collective).rooted ? 1 : -1;
            for (int rank = 0; rank < ranks; ++rank) {
                const Schedule schedule = row.build({ranks, rank, layout.hosts}, {.root = root});
                const size_t largest = largest_tile_bytes(schedule, slot_bytes);
                if (largest == SIZE_MAX) continue;
                INFO(row.name << " for " << name_of(row.collective) << ", rank " << rank << " of " << ranks << " on "
                              << hosts << " hosts");
                size_t longest_here = 0;
                for (const Block& block : schedule.blocks)
                    for (const Instruction& it : block.instructions)
                        for (size_t less = 0; less < 3 * 64; less += 7)
                            if (kind_of(it.opcode) == OpcodeKind::connection)
                                longest_here = std::max(
                                    longest_here,
                                    chunk_span(it, 0, largest - less, schedule.chunks, schedule.parts()).bytes);
                CHECK(longest_here <= slot_bytes);
                longest = std::max(longest, longest_here);
            }
        }
    CHECK(longest == slot_bytes);
}

TEST_CASE("a message that wraps round in the middle of a whole fits a slot", "[schedule]") {
    // Of 8 chunks 3, 4 and 0: neither end of the two pieces is the whole's.
    Builder builder("x", Collective::broadcast, {.ranks = 2, .rank = 0},
                    {.chunks = 8, .fifo_depth = 2, .span = 3, .root = 0});
    StepBuilder sent = builder.block({.target = 1}).span(3).send(Chunk{0, 3, 5});
    const Dependency at = sent.dependency();
    const Schedule schedule = builder.finish();
    for (const size_t slot_bytes : {size_t(128) << 10, size_t(256) << 10, size_t(512) << 10, size_t(4096)}) {
        const size_t largest = largest_tile_bytes(schedule, slot_bytes);
        for (size_t tile = largest - 4096; tile <= largest; ++tile)
            REQUIRE(chunk_span(schedule.blocks[size_t(at.block)].instructions[size_t(at.step)], 0, tile, 8).bytes <=
                    slot_bytes);
    }
}
