// two_level_test.cpp: two-level algorithms, one form inside a host and one between hosts: the calls that they serve,
// when they are chosen, and the traffic on a host's link.
#include <map>
#include <set>

#include "src/checker/checker.hpp"
#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/selector.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

constexpr Collective over_hosts[] = {Collective::broadcast, Collective::reduce, Collective::all_gather,
                                     Collective::reduce_scatter, Collective::all_to_all};

std::string refusal(const char* algorithm, Collective collective, std::vector<int32_t> hosts) {
    const char* why = registry::find_algorithm(algorithm, collective)->refusal({int(hosts.size()), 0, hosts});
    return why ? why : "";
}

std::string chosen(Collective collective, size_t bytes, int ranks, int hosts) {
    Operation operation;
    operation.collective = collective;
    operation.type = weftUint8;
    operation.op = weftSum;
    operation.count = bytes / size_t(parts_of(collective, ranks));
    const auto choice = select(operation, {ranks, 0, hosts_in_blocks(ranks, hosts)}, network_link_costs(1, 10'000), {},
                               registry::algorithms());
    return choice ? choice->algorithm->name : choice.status().sentence();
}

// Chunks that leave each host.
std::map<int, int> chunks_leaving(const char* algorithm, Collective collective, int ranks, int hosts, int root = -1) {
    std::map<int, int> leaving;
    for (int rank = 0; rank < ranks; ++rank) {
        const Layout layout{ranks, rank, hosts_in_blocks(ranks, hosts)};
        const Schedule schedule =
            registry::find_algorithm(algorithm, collective)->schedule(layout, {.channels = 1, .root = root});
        for (const Block& block : schedule.blocks)
            for (const Instruction& it : block.instructions)
                if (kind_of(it.opcode) == OpcodeKind::connection && sends(it.opcode) &&
                    layout.host_of(block.target) != layout.host_of(rank))
                    leaving[layout.host_of(rank)] += it.repeat * it.count;
    }
    return leaving;
}

}  // namespace

TEST_CASE("layouts without two levels, or with parts in the wrong order, are refused with the reason", "[schedule]") {
    for (const Algorithm& row : registry::algorithms()) {
        if (!made_of_two(row.name)) continue;
        INFO(row.name << " for " << name_of(row.collective));
        CHECK(row.refusal({4, 0, {}}) == std::string("needs several hosts"));
        CHECK(row.refusal({3, 0, {0, 1, 2}}) == std::string("needs a host with several ranks"));
        CHECK(row.refusal({4, 0, {0, 0, 1, 1}}) == nullptr);
    }
    const std::string dealt = "needs ranks that are numbered host by host", uneven = "needs as many ranks on each host";
    CHECK(refusal("two_level_ring", Collective::all_gather, {0, 1, 0, 1}) == dealt);
    CHECK(refusal("two_level_ring", Collective::reduce_scatter, {0, 0, 1}) == uneven);
    CHECK(refusal("two_level_all_pairs", Collective::all_to_all, {0, 0, 1}) == uneven);
    CHECK(refusal("leader_halving_doubling", Collective::all_gather, {0, 1, 0, 1}) == dealt);
    CHECK(refusal("leader_halving_doubling", Collective::reduce_scatter, {0, 0, 1}) == "");
    CHECK(refusal("leader_all_pairs", Collective::all_to_all, {0, 1, 0, 1}) == dealt);
    CHECK(refusal("leader_all_pairs", Collective::all_to_all, {0, 0, 1}) == "");
    CHECK(refusal("leader_all_pairs", Collective::all_to_all, hosts_in_blocks(256, 4)) == "");
    CHECK(refusal("leader_all_pairs", Collective::all_to_all, hosts_in_blocks(130, 2)) ==
          "has what all ranks of a host send to others in one rank's memory: at most 64 on each, fewer of many hosts");
    CHECK(refusal("two_level_tree", Collective::broadcast, {0, 1, 0}) == "");
    CHECK(refusal("leader_binomial_tree", Collective::reduce, {0, 1, 0}) == "");
    CHECK(refusal("rail_ring", Collective::all_gather, {0, 1, 0, 1}) == dealt);
    CHECK(refusal("rail_all_pairs", Collective::reduce_scatter, {0, 0, 1}) == uneven);
    CHECK(refusal("rail_all_pairs", Collective::all_to_all, {0, 0, 1}) == uneven);
    CHECK(refusal("rail_tree", Collective::broadcast, {0, 1, 0}) == "");
    CHECK(refusal("rail_tree", Collective::all_reduce, hosts_in_blocks(64, 2)) == "");
    CHECK(refusal("rail_tree", Collective::all_reduce, hosts_in_blocks(65, 2)) ==
          "needs two connections to every rank of a host: at most 32 ranks on each");
}

// A ring keeps links and processors busy, too, and crosses a host's border as seldom. In an all-to-all between two
// hosts all bytes cross the one border anyway, with pairs on the shortest way.
TEST_CASE("between hosts with several ranks each, a two-level form or a ring is predicted to be fastest",
          "[schedule]") {
    for (const Collective collective : over_hosts)
        for (const auto& [ranks, hosts] : {std::pair{8, 2}, {16, 4}, {32, 4}, {64, 8}})
            for (const size_t bytes : {size_t(1) << 10, size_t(64) << 10, size_t(1) << 20, size_t(64) << 20}) {
                const std::string name = chosen(collective, bytes, ranks, hosts);
                INFO(name_of(collective) << " of " << bytes << " bytes on " << ranks << " ranks of " << hosts);
                CAPTURE(name);
                const bool pairs = name == "all_pairs" && collective == Collective::all_to_all && hosts == 2;
                CHECK((made_of_two(name) || (name == "ring" && bytes > 1 << 10) || (pairs && bytes >= 1 << 20)));
            }
}

TEST_CASE("between hosts of one rank each, few rounds serve short messages and few bytes long ones", "[schedule]") {
    for (const int hosts : {8, 32, 128}) {
        CHECK(chosen(Collective::broadcast, 64, hosts, hosts) == "binomial_tree");
        CHECK(chosen(Collective::broadcast, 1 << 20, hosts, hosts) == "double_binary_tree");
        CHECK(chosen(Collective::reduce, 1 << 20, hosts, hosts) == "double_binary_tree");
        CHECK(chosen(Collective::all_gather, 1 << 10, hosts, hosts) == "halving_doubling");
        CHECK(chosen(Collective::all_to_all, 1 << 10, hosts, hosts) == "bruck");
        CHECK(chosen(Collective::all_to_all, 4 << 20, hosts, hosts) == "all_pairs");
    }
}

TEST_CASE("where rails are known ranks of one talk to each other, and owners of a shard use all of them",
          "[schedule]") {
    // Ranks in another order on each host; then hosts with more ranks than others, which sit rail by rail.
    const Layout alike{12, 0, hosts_in_blocks(12, 3), {}, {0, 1, 2, 3, 2, 0, 3, 1, 3, 2, 1, 0}},
        unequal{12, 0, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}, {}, {0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1}};
    for (const Algorithm& row : registry::algorithms()) {
        const Collective collective = row.collective;
        const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
        if (!made_of_two(row.name) || (collective != Collective::all_reduce && !rooted)) continue;
        for (const Layout& layout : {alike, unequal})
            for (int root = rooted ? 0 : -1; root < (rooted ? 12 : 0); root += sanitized ? 5 : 1) {
                INFO(row.name << " for " << name_of(collective) << ", root " << root);
                std::vector<Schedule> schedules;
                std::map<int, std::set<int>> used;  // rails, by host
                bool same = true;
                int owners = 0;
                for (Layout seen = layout; seen.rank < 12; ++seen.rank) {
                    schedules.push_back(row.schedule(seen, {.channels = 1, .root = root}));
                    bool owns = false;
                    for (const Block& block : schedules.back().blocks)
                        for (const int32_t peer : {block.source, block.target}) {
                            if (peer < 0 || seen.host_of(peer) == seen.host_of(seen.rank)) continue;
                            owns = true;
                            same = same && seen.rails[size_t(peer)] == seen.rails[size_t(seen.rank)];
                            used[seen.host_of(seen.rank)].insert(seen.rails[size_t(seen.rank)]);
                        }
                    owners += owns;
                }
                CHECK(same);
                // By one of each host's, or by four.
                for (const auto& [host, rails] : used)
                    CHECK(int(rails.size()) == (owners == layout.host_count() ? 1 : layout.host_count() == 3 ? 4 : 2));
                const Status status = check_set(schedules);
                INFO(status.sentence());
                CHECK(status.ok());
            }
    }
}

TEST_CASE("each byte leaves a host as often as it must", "[schedule]") {
    // Eight ranks of four hosts. Of parts: two of each host's to three others, or to each other one what is its.
    for (const auto& [host, chunks] : chunks_leaving("two_level_ring", Collective::all_gather, 8, 4))
        CHECK(chunks == 6);
    for (const auto& [host, chunks] : chunks_leaving("leader_halving_doubling", Collective::all_gather, 8, 4))
        CHECK(chunks == 6);
    for (const auto& [host, chunks] : chunks_leaving("two_level_ring", Collective::reduce_scatter, 8, 4))
        CHECK(chunks == 6);
    for (const auto& [host, chunks] : chunks_leaving("leader_halving_doubling", Collective::reduce_scatter, 8, 4))
        CHECK(chunks == 6);
    for (const char* name : {"rail_ring", "rail_all_pairs"})
        for (const Collective collective : {Collective::all_gather, Collective::reduce_scatter})
            for (const auto& [host, chunks] : chunks_leaving(name, collective, 8, 4)) CHECK(chunks == 6);
    // Both halves of an all-reduce of eight chunks.
    for (const auto& [host, chunks] : chunks_leaving("rail_halving_doubling", Collective::all_reduce, 8, 4))
        CHECK(chunks == 2 * 6);
    // Each of two ranks has two parts for each of three hosts.
    for (const char* name : {"two_level_all_pairs", "leader_all_pairs", "rail_all_pairs"})
        for (const auto& [host, chunks] : chunks_leaving(name, Collective::all_to_all, 8, 4)) CHECK(chunks == 12);
    // A whole of four chunks, from each of the others but the root's, in all.
    int all = 0;
    for (const auto& [host, chunks] : chunks_leaving("two_level_tree", Collective::reduce, 8, 4, 3)) all += chunks;
    CHECK(all == 3 * 4);
    CHECK(chunks_leaving("two_level_tree", Collective::reduce, 8, 4, 3).count(1) == 0);
    // To three hosts, each of the four chunks once.
    all = 0;
    for (const auto& [host, chunks] : chunks_leaving("rail_tree", Collective::broadcast, 8, 4, 3)) all += chunks;
    CHECK(all == 3 * 4);
    // To a host each, whole.
    all = 0;
    for (const auto& [host, chunks] : chunks_leaving("leader_binomial_tree", Collective::broadcast, 8, 4, 3))
        all += chunks;
    CHECK(all == 3);
}
