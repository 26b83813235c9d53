// connections_test.cpp: where connections lie: both ends of each reckon the same places, which nobody else has.
#include <cstring>
#include <map>
#include <set>

#include "src/executor/cuda/connections.hpp"
#include "src/executor/cuda/program.hpp"
#include "src/registry.hpp"
#include "tests/catch.hpp"

namespace weft::test {

using namespace cuda;

namespace {

std::vector<Schedule> schedules_of(const char* name, int ranks, int channels) {
    std::vector<Schedule> all;
    for (int rank = 0; rank < ranks; ++rank)
        all.push_back(registry::find_algorithm(name)->build({ranks, rank}, {channels}));
    return all;
}

// What must not overlap, and each place only once.
struct Claims {
    void take(const std::byte* begin, size_t bytes) {
        const auto next = taken.lower_bound(begin);
        CHECK((next == taken.end() || begin + bytes <= next->first));
        CHECK((next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= begin));
        taken[begin] = bytes;
    }
    std::map<const std::byte*, size_t> taken;
};

}  // namespace

TEST_CASE("both ends of a connection have the same places, within the areas, and nobody else has them",
          "[connections]") {
    for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        Connections connections;
        std::vector<std::vector<Schedule>> all;
        for (const char* name : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling", "all_pairs"})
            all.push_back(schedules_of(name, ranks, 3));
        for (const auto& schedules : all) connections.add(schedules);
        INFO(ranks << " ranks");
        // Addresses that are never looked at.
        std::vector<std::byte*> areas;
        for (int rank = 0; rank < ranks; ++rank) areas.push_back(reinterpret_cast<std::byte*>(size_t(rank + 1) << 40));
        const auto area_of = [](const void* at) { return int(reinterpret_cast<uintptr_t>(at) >> 40) - 1; };
        const auto inside = [&](const void* at, size_t bytes) {
            return (reinterpret_cast<uintptr_t>(at) & ((size_t(1) << 40) - 1)) + bytes <= connections.area_bytes();
        };
        Claims claims;
        for (size_t index = 0; index < all.size(); ++index) {
            std::map<std::tuple<int, int, int>, ConnectionEnd> sending, receiving;
            for (int rank = 0; rank < ranks; ++rank) {
                const Schedule& schedule = all[index][size_t(rank)];
                const std::vector<std::byte> programs = connections.programs(rank, areas);
                REQUIRE(programs.size() == connections.program_bytes());
                KernelArguments arguments{};
                arguments.rank = rank;
                connections.bind(arguments, index, programs.data());
                REQUIRE(arguments.step_block_count == int(schedule.blocks.size()));
                CHECK(arguments.chunks == schedule.chunks);
                for (size_t b = 0; b < schedule.blocks.size(); ++b) {
                    const Block& block = schedule.blocks[b];
                    StepBlock bound;
                    memcpy(&bound, arguments.step_blocks + b, sizeof bound);
                    REQUIRE(bound.count == int(block.instructions.size()));
                    for (int i = 0; i < bound.count; ++i)
                        CHECK(arguments.instructions[bound.first + i] == block.instructions[size_t(i)]);
                    CHECK(bound.source.peer == block.source);
                    CHECK(bound.target.peer == block.target);
                    if (block.source >= 0) receiving[{block.channel, block.source, rank}] = bound.source;
                    if (block.target >= 0) sending[{block.channel, rank, block.target}] = bound.target;
                }
            }
            REQUIRE(sending.size() == receiving.size());
            for (const auto& [name, from] : sending) {
                const auto [channel, source, target] = name;
                const ConnectionEnd& to = receiving.at(name);
                CHECK(from.slots == to.slots);
                CHECK(from.filled == to.filled);
                CHECK(from.consumed == to.consumed);
                CHECK((from.depth == to.depth && from.slot_bytes == to.slot_bytes));
                CHECK((from.depth & (from.depth - 1)) == 0);
                CHECK((area_of(to.slots) == target && area_of(to.filled) == target && area_of(to.count) == target));
                CHECK((area_of(from.consumed) == source && area_of(from.count) == source));
                const size_t slots = from.depth * from.slot_bytes, filled = from.depth * sizeof(uint64_t);
                CHECK((inside(to.slots, slots) && inside(to.filled, filled) && inside(from.consumed, 4)));
                claims.take(to.slots, slots);
                claims.take(reinterpret_cast<const std::byte*>(to.filled), filled);
                for (const uint32_t* word : {from.consumed, from.count, to.count})
                    claims.take(reinterpret_cast<const std::byte*>(word), 4);
            }
        }
    }
}

}  // namespace weft::test
