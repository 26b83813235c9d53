// connections_test.cpp: the places of connections: both ends of each compute the same ones, which no other connection
// has.
#include <cstring>
#include <map>
#include <set>

#include "src/gpu/domain/connections.hpp"
#include "src/gpu/domain/program.hpp"
#include "src/registry.hpp"
#include "tests/catch.hpp"

namespace weft::internal::test {

using namespace cuda;

namespace {

// Those of an algorithm of each kind, with all roots.
std::vector<std::vector<Schedule>> all_schedules(const Layout& layout, int channels) {
    std::vector<std::vector<Schedule>> all;
    for (const auto& [name, collective] : {std::pair{"ring", Collective::all_reduce},
                                           {"double_binary_tree", Collective::all_reduce},
                                           {"halving_doubling", Collective::all_reduce},
                                           {"recursive_doubling", Collective::all_reduce},
                                           {"all_pairs", Collective::all_reduce},
                                           {"ring", Collective::broadcast},
                                           {"binomial_tree", Collective::gather},
                                           {"all_pairs", Collective::all_to_all}}) {
        const bool rooted = facts_of(collective).rooted;
        for (int root = 0; root < (rooted ? layout.ranks : 1); ++root) {
            std::vector<Schedule>& schedules = all.emplace_back();
            Layout seen = layout;
            for (seen.rank = 0; seen.rank < layout.ranks; ++seen.rank)
                schedules.push_back(
                    registry::find_algorithm(name, collective)->build(seen, {channels, rooted ? root : -1}));
        }
    }
    return all;
}

// Ranges that must not overlap, each taken once.
struct UniqueNumbers {
    void take(const std::byte* begin, size_t bytes) {
        const auto next = taken.lower_bound(begin);
        CHECK((next == taken.end() || begin + bytes <= next->first));
        CHECK((next == taken.begin() || std::prev(next)->first + std::prev(next)->second <= begin));
        taken[begin] = bytes;
    }
    std::map<const std::byte*, size_t> taken;
};

}  // namespace

TEST_CASE("both ends of a connection have the same addresses within the areas, and no other connection has them",
          "[connections]") {
    for (const int ranks : {1, 2, 3, 5, 8, 16}) {
        Connections connections;
        const std::vector<std::vector<Schedule>> all = all_schedules({ranks, 0}, 3);
        for (const auto& schedules : all) connections.add(schedules);
        INFO(ranks << " ranks");
        // Addresses that are never looked at.
        std::vector<std::byte*> areas;
        for (int rank = 0; rank < ranks; ++rank) areas.push_back(reinterpret_cast<std::byte*>(size_t(rank + 1) << 40));
        const auto area_of = [](const void* at) { return int(reinterpret_cast<uintptr_t>(at) >> 40) - 1; };
        const auto inside = [&](const void* at, size_t bytes) {
            return (reinterpret_cast<uintptr_t>(at) & ((size_t(1) << 40) - 1)) + bytes <= connections.area_bytes();
        };
        UniqueNumbers claims;
        std::map<const uint64_t*, std::tuple<int, int, int>> known;  // connections serve several programs
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
                if (const auto found = known.find(to.filled); found != known.end()) {
                    CHECK(found->second == name);
                    continue;
                }
                known[to.filled] = name;
                claims.take(to.slots, slots);
                claims.take(reinterpret_cast<const std::byte*>(to.filled), filled);
                for (const uint32_t* word : {from.consumed, from.count, to.count})
                    claims.take(reinterpret_cast<const std::byte*>(word), 4);
            }
        }
    }
}

TEST_CASE("ends remote have places of their own in the rank's host memory, others as on one host", "[connections]") {
    for (const auto& hosts : {std::vector<int32_t>{0, 1}, {0, 0, 1, 1}, {0, 1, 2}, {0, 1, 0, 1, 2}}) {
        const int ranks = int(hosts.size());
        INFO(ranks << " ranks");
        Connections connections(Connections::all_ranks, hosts);
        for (auto& schedules : all_schedules({ranks, 0, hosts}, 2)) connections.add(std::move(schedules));
        for (int rank = 0; rank < ranks; ++rank) {
            std::vector<std::byte*> areas;
            for (int other = 0; other < ranks; ++other)
                areas.push_back(hosts[size_t(other)] == hosts[size_t(rank)]
                                    ? reinterpret_cast<std::byte*>(size_t(other + 1) << 40)
                                    : nullptr);
            // As kernels address it, and as the host does.
            const auto memory_at = [&](int number) {
                const auto place = [&](size_t part) {
                    return reinterpret_cast<std::byte*>((size_t(ranks + number) << 40) + (part << 36));
                };
                return RemoteEndMemory{place(0), place(1), place(2)};
            };
            const RemoteEndMemory for_kernels = memory_at(1), for_host = memory_at(2);
            const std::vector<std::byte> programs = connections.programs(rank, areas, for_kernels);
            UniqueNumbers claims;
            // As the host has them, by what kernels find.
            std::map<std::pair<bool, ptrdiff_t>, RemoteEnd> ends;
            const std::vector<RemoteEnd> listed = connections.remote_ends(rank, for_host),
                                         unbound = connections.remote_ends(rank, {});
            REQUIRE(listed.size() == unbound.size());
            for (size_t i = 0; i < listed.size(); ++i) {
                const RemoteEnd& each = listed[i];
                CHECK((unbound[i].channel == each.channel && unbound[i].incoming == each.incoming));
                CHECK((unbound[i].end.peer == each.end.peer && unbound[i].end.depth == each.end.depth));
                CHECK(hosts[size_t(each.end.peer)] != hosts[size_t(rank)]);
                CHECK((each.end.lengths != nullptr) == !each.incoming);
                CHECK((each.end.wanted != nullptr) == each.incoming);
                CHECK((unbound[i].end.slots == nullptr && unbound[i].end.filled == nullptr));
                std::byte* const slots = each.incoming ? for_host.received : for_host.sent;
                const size_t bytes = each.incoming ? connections.received_bytes() : connections.sent_bytes();
                CHECK(each.end.slots + each.end.depth * each.end.slot_bytes <= slots + bytes);
                CHECK(each.end.slots >= slots);
                CHECK(reinterpret_cast<std::byte*>(each.end.filled) <
                      for_host.words + connections.remote_words_bytes());
                claims.take(each.end.slots, each.end.depth * each.end.slot_bytes);
                claims.take(reinterpret_cast<const std::byte*>(each.end.filled), each.end.depth * sizeof(uint64_t));
                claims.take(reinterpret_cast<const std::byte*>(each.end.consumed), sizeof(uint32_t));
                if (each.incoming)
                    claims.take(reinterpret_cast<const std::byte*>(each.end.wanted), sizeof(uint32_t));
                else
                    claims.take(reinterpret_cast<const std::byte*>(each.end.lengths),
                                each.end.depth * sizeof(uint64_t));
                ends[{each.incoming, each.end.slots - slots}] = each;
            }
            std::set<std::pair<bool, ptrdiff_t>> used;
            for (size_t index = 0; index < connections.programs(); ++index) {
                const Schedule& schedule = connections.schedule(index, rank);
                KernelArguments arguments{};
                arguments.rank = rank;
                connections.bind(arguments, index, programs.data());
                for (size_t b = 0; b < schedule.blocks.size(); ++b) {
                    StepBlock bound;
                    memcpy(&bound, arguments.step_blocks + b, sizeof bound);
                    for (const bool incoming : {true, false}) {
                        const ConnectionEnd& kernels = incoming ? bound.source : bound.target;
                        if (kernels.peer < 0 || hosts[size_t(kernels.peer)] == hosts[size_t(rank)]) continue;
                        const std::pair place(incoming,
                                              kernels.slots - (incoming ? for_kernels.received : for_kernels.sent));
                        REQUIRE(ends.count(place) == 1);
                        const RemoteEnd& each = ends[place];
                        CHECK((each.incoming == incoming && each.channel == schedule.blocks[b].channel));
                        CHECK((each.end.peer == kernels.peer && each.end.depth == kernels.depth));
                        CHECK(reinterpret_cast<std::byte*>(kernels.filled) - for_kernels.words ==
                              reinterpret_cast<std::byte*>(each.end.filled) - for_host.words);
                        CHECK(reinterpret_cast<std::byte*>(kernels.consumed) - for_kernels.words ==
                              reinterpret_cast<std::byte*>(each.end.consumed) - for_host.words);
                        CHECK(kernels.count != nullptr);
                        used.insert(place);
                    }
                }
            }
            CHECK(used.size() == ends.size());
        }
    }
}

TEST_CASE("roots and algorithms cost programs, and connections no more than there are pairs", "[connections]") {
    const int ranks = 17;
    const auto all = all_schedules({ranks, 0}, 16);
    Connections connections(3), one_root(3);
    std::set<Collective> rooted;
    for (const auto& schedules : all) {
        connections.add(schedules);
        const bool first = rooted.insert(schedules[0].collective).second;
        if (schedules[0].root < 0 || first) one_root.add(schedules);
    }
    CHECK(connections.programs() == all.size());
    // Trees of other roots join other ranks: all pairs do.
    CHECK(connections.area_bytes() <= (16 + 2 * ranks) * 4 * Connections::slot_bytes);
    CHECK(connections.program_bytes() < size_t(1) << 20);
    CHECK(connections.scratch_bytes() >= Connections::slot_bytes);
    CHECK(connections.scratch_bytes() <= 4 * Connections::slot_bytes);
    CHECK(connections.scratch_bytes() == one_root.scratch_bytes());
    CHECK(connections.schedule(0, 2).blocks.empty());  // another's
    CHECK_FALSE(connections.schedule(0, 3).blocks.empty());
}

}  // namespace weft::internal::test
