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

TEST_CASE("ends abroad have places of their own in the rank's host memory, others as on one host", "[connections]") {
    for (const auto& hosts : {std::vector<int32_t>{0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 1, 0, 1, 2}}) {
        const int ranks = int(hosts.size());
        INFO(ranks << " ranks");
        Connections connections(hosts);
        for (const char* name : {"ring", "double_binary_tree", "halving_doubling", "recursive_doubling", "all_pairs"}) {
            std::vector<Schedule> schedules;
            for (int rank = 0; rank < ranks; ++rank)
                schedules.push_back(registry::find_algorithm(name)->build({ranks, rank, hosts}, {2}));
            connections.add(std::move(schedules));
        }
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<std::byte*> areas;
            for (int other = 0; other < ranks; ++other)
                areas.push_back(hosts[size_t(other)] == hosts[size_t(rank)]
                                    ? reinterpret_cast<std::byte*>(size_t(other + 1) << 40)
                                    : nullptr);
            // As kernels address it, and as the host does.
            auto* const for_kernels = reinterpret_cast<std::byte*>(size_t(ranks + 1) << 40);
            auto* const for_host = reinterpret_cast<std::byte*>(size_t(ranks + 2) << 40);
            const std::vector<std::byte> programs = connections.programs(rank, areas, for_kernels);
            Claims claims;
            size_t ends = 0;
            for (const AbroadEnd& each : connections.abroad_ends(rank, for_host)) {
                const Block& block = connections.schedule(each.group, rank).blocks[each.block];
                CHECK(each.end.peer == (each.incoming ? block.source : block.target));
                CHECK(hosts[size_t(each.end.peer)] != hosts[size_t(rank)]);
                CHECK((each.end.lengths != nullptr) == !each.incoming);
                CHECK((each.end.wanted != nullptr) == each.incoming);
                CHECK(each.end.slots + each.end.depth * each.end.slot_bytes <= for_host + connections.abroad_bytes());
                CHECK(each.end.slots >= for_host + connections.abroad_words_bytes());
                claims.take(each.end.slots, each.end.depth * each.end.slot_bytes);
                claims.take(reinterpret_cast<const std::byte*>(each.end.filled), each.end.depth * sizeof(uint64_t));
                claims.take(reinterpret_cast<const std::byte*>(each.end.consumed), sizeof(uint32_t));
                if (each.incoming)
                    claims.take(reinterpret_cast<const std::byte*>(each.end.wanted), sizeof(uint32_t));
                else
                    claims.take(reinterpret_cast<const std::byte*>(each.end.lengths),
                                each.end.depth * sizeof(uint64_t));
                // The kernel has the same places.
                KernelArguments arguments{};
                arguments.rank = rank;
                connections.bind(arguments, each.group, programs.data());
                StepBlock bound;
                memcpy(&bound, arguments.step_blocks + each.block, sizeof bound);
                const ConnectionEnd& kernels = each.incoming ? bound.source : bound.target;
                CHECK(kernels.slots - for_kernels == each.end.slots - for_host);
                CHECK(reinterpret_cast<std::byte*>(kernels.filled) - for_kernels ==
                      reinterpret_cast<std::byte*>(each.end.filled) - for_host);
                CHECK(reinterpret_cast<std::byte*>(kernels.consumed) - for_kernels ==
                      reinterpret_cast<std::byte*>(each.end.consumed) - for_host);
                CHECK(kernels.count != nullptr);
                ++ends;
            }
            size_t crossing = 0;
            for (size_t group = 0; group < connections.groups(); ++group)
                for (const Block& block : connections.schedule(group, rank).blocks)
                    for (const int peer : {block.source, block.target})
                        crossing += peer >= 0 && hosts[size_t(peer)] != hosts[size_t(rank)];
            CHECK(ends == crossing);
        }
    }
}

}  // namespace weft::test
