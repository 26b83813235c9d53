// Schedules against their golden texts in tests/schedules/, so that a change of an algorithm is reviewed as a diff.
// After a wanted change: `weft schedule build ring --ranks 4 -o tests/schedules/ring_all_reduce_4.txt`, and so on.
#include <fstream>
#include <iterator>

#include "src/schedule/text.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/cases.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static std::string file_text(const std::string& name) {
    std::ifstream file(std::string(WEFT_SCHEDULES) + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

struct Golden {
    const char* file;
    const char* algorithm;
    int ranks;
    int channels;
    const char* expansion;  // as `weft schedule` names it
    int hosts = 1;
    Collective collective = Collective::all_reduce;
    int root = -1;

    Layout layout(int rank) const { return layout_in_blocks(ranks, hosts, rank); }
};

static const Golden goldens[] = {
    {"ring_all_reduce_1.txt", "ring", 1, 1, ""},
    {"ring_all_reduce_2.txt", "ring", 2, 1, ""},
    {"ring_all_reduce_4.txt", "ring", 4, 1, ""},
    {"ring_all_reduce_5_channels_2.txt", "ring", 5, 2, ""},
    {"one_shot_all_reduce_4.txt", "one_shot", 4, 1, ""},
    {"one_shot_all_reduce_4_staged.txt", "one_shot", 4, 1, "staged"},
    {"one_shot_all_reduce_4_readable.txt", "one_shot", 4, 1, "readable=0,2"},
    {"two_shot_all_reduce_4.txt", "two_shot", 4, 1, ""},
    {"two_shot_all_reduce_4_staged.txt", "two_shot", 4, 1, "staged"},
    {"two_shot_all_reduce_4_readable.txt", "two_shot", 4, 1, "readable=0,2"},
    {"two_shot_all_reduce_4_direct.txt", "two_shot", 4, 1, "direct"},
    {"two_shot_all_reduce_4_pipelined.txt", "two_shot", 4, 1, "pipelined=4"},
    {"recursive_doubling_all_reduce_4.txt", "recursive_doubling", 4, 1, ""},
    {"recursive_doubling_all_reduce_5.txt", "recursive_doubling", 5, 1, ""},
    {"halving_doubling_all_reduce_4.txt", "halving_doubling", 4, 1, ""},
    {"halving_doubling_all_reduce_7.txt", "halving_doubling", 7, 1, ""},
    {"all_pairs_all_reduce_4.txt", "all_pairs", 4, 1, ""},
    {"rank_order_all_reduce_3.txt", "rank_order", 3, 1, ""},
    {"rank_order_reduce_3_root_1.txt", "rank_order", 3, 1, "", 1, Collective::reduce, 1},
    {"rank_order_reduce_scatter_3.txt", "rank_order", 3, 1, "", 1, Collective::reduce_scatter},
    {"double_binary_tree_all_reduce_4.txt", "double_binary_tree", 4, 1, ""},
    {"double_binary_tree_all_reduce_7.txt", "double_binary_tree", 7, 1, ""},
    {"two_level_ring_all_reduce_8_hosts_2.txt", "two_level_ring", 8, 1, "", 2},
    {"two_level_ring_all_reduce_7_hosts_3.txt", "two_level_ring", 7, 1, "", 3},
    {"two_level_tree_all_reduce_6_hosts_3.txt", "two_level_tree", 6, 1, "", 3},
    {"two_level_halving_doubling_all_reduce_6_hosts_3.txt", "two_level_halving_doubling", 6, 1, "", 3},
    {"two_level_doubling_all_reduce_6_hosts_3.txt", "two_level_doubling", 6, 1, "", 3},
    {"leader_doubling_all_reduce_4_hosts_2.txt", "leader_doubling", 4, 1, "", 2},
    {"rail_tree_all_reduce_6_hosts_3.txt", "rail_tree", 6, 1, "", 3},
    {"rail_halving_doubling_all_reduce_7_hosts_3.txt", "rail_halving_doubling", 7, 1, "", 3},
    {"rail_doubling_all_reduce_6_hosts_2.txt", "rail_doubling", 6, 1, "", 2},
    {"rail_tree_broadcast_6_hosts_3_root_2.txt", "rail_tree", 6, 1, "", 3, Collective::broadcast, 2},
    {"rail_binomial_tree_broadcast_7_hosts_3_root_3.txt", "rail_binomial_tree", 7, 1, "", 3, Collective::broadcast, 3},
    {"rail_ring_all_gather_6_hosts_3.txt", "rail_ring", 6, 1, "", 3, Collective::all_gather},
    {"rail_all_pairs_all_gather_6_hosts_2.txt", "rail_all_pairs", 6, 1, "", 2, Collective::all_gather},
    {"rail_ring_reduce_scatter_6_hosts_2.txt", "rail_ring", 6, 1, "", 2, Collective::reduce_scatter},
    {"rail_all_pairs_reduce_scatter_6_hosts_3.txt", "rail_all_pairs", 6, 1, "", 3, Collective::reduce_scatter},
    {"rail_all_pairs_all_to_all_6_hosts_2.txt", "rail_all_pairs", 6, 1, "", 2, Collective::all_to_all},
    {"leader_binomial_tree_broadcast_6_hosts_3_root_2.txt", "leader_binomial_tree", 6, 1, "", 3, Collective::broadcast,
     2},
    {"two_level_tree_broadcast_6_hosts_3_root_2.txt", "two_level_tree", 6, 1, "", 3, Collective::broadcast, 2},
    {"leader_binomial_tree_reduce_6_hosts_3_root_2.txt", "leader_binomial_tree", 6, 1, "", 3, Collective::reduce, 2},
    {"two_level_tree_reduce_6_hosts_3_root_2.txt", "two_level_tree", 6, 1, "", 3, Collective::reduce, 2},
    {"leader_halving_doubling_all_gather_7_hosts_3.txt", "leader_halving_doubling", 7, 1, "", 3,
     Collective::all_gather},
    {"two_level_ring_all_gather_6_hosts_3.txt", "two_level_ring", 6, 1, "", 3, Collective::all_gather},
    {"leader_halving_doubling_reduce_scatter_7_hosts_3.txt", "leader_halving_doubling", 7, 1, "", 3,
     Collective::reduce_scatter},
    {"two_level_ring_reduce_scatter_6_hosts_3.txt", "two_level_ring", 6, 1, "", 3, Collective::reduce_scatter},
    {"two_level_all_pairs_all_to_all_4_hosts_2.txt", "two_level_all_pairs", 4, 1, "", 2, Collective::all_to_all},
    {"leader_all_pairs_all_to_all_5_hosts_3.txt", "leader_all_pairs", 5, 1, "", 3, Collective::all_to_all},
    {"one_shot_broadcast_3_root_1.txt", "one_shot", 3, 1, "", 1, Collective::broadcast, 1},
    {"binomial_tree_broadcast_6_root_1.txt", "binomial_tree", 6, 1, "", 1, Collective::broadcast, 1},
    {"scatter_all_gather_broadcast_6_root_1.txt", "scatter_all_gather", 6, 1, "", 1, Collective::broadcast, 1},
    {"double_binary_tree_broadcast_6_root_1.txt", "double_binary_tree", 6, 1, "", 1, Collective::broadcast, 1},
    {"double_binary_tree_reduce_7_root_2.txt", "double_binary_tree", 7, 1, "", 1, Collective::reduce, 2},
    {"ring_broadcast_3_root_1.txt", "ring", 3, 1, "", 1, Collective::broadcast, 1},
    {"one_shot_reduce_3_root_1.txt", "one_shot", 3, 1, "", 1, Collective::reduce, 1},
    {"two_shot_reduce_3_root_1.txt", "two_shot", 3, 1, "", 1, Collective::reduce, 1},
    {"binomial_tree_reduce_6_root_1.txt", "binomial_tree", 6, 1, "", 1, Collective::reduce, 1},
    {"ring_reduce_3_root_1.txt", "ring", 3, 1, "", 1, Collective::reduce, 1},
    {"one_shot_all_gather_3.txt", "one_shot", 3, 1, "", 1, Collective::all_gather},
    {"halving_doubling_all_gather_5.txt", "halving_doubling", 5, 1, "", 1, Collective::all_gather},
    {"pat_all_gather_7.txt", "pat", 7, 1, "", 1, Collective::all_gather},
    {"all_pairs_all_gather_3.txt", "all_pairs", 3, 1, "", 1, Collective::all_gather},
    {"ring_all_gather_3.txt", "ring", 3, 1, "", 1, Collective::all_gather},
    {"one_shot_reduce_scatter_3.txt", "one_shot", 3, 1, "", 1, Collective::reduce_scatter},
    {"halving_doubling_reduce_scatter_5.txt", "halving_doubling", 5, 1, "", 1, Collective::reduce_scatter},
    {"pat_reduce_scatter_7.txt", "pat", 7, 1, "", 1, Collective::reduce_scatter},
    {"all_pairs_reduce_scatter_3.txt", "all_pairs", 3, 1, "", 1, Collective::reduce_scatter},
    {"ring_reduce_scatter_3.txt", "ring", 3, 1, "", 1, Collective::reduce_scatter},
    {"one_shot_all_to_all_3.txt", "one_shot", 3, 1, "", 1, Collective::all_to_all},
    {"all_pairs_all_to_all_3.txt", "all_pairs", 3, 1, "", 1, Collective::all_to_all},
    {"bruck_all_to_all_6.txt", "bruck", 6, 1, "", 1, Collective::all_to_all},
    {"one_shot_gather_3_root_1.txt", "one_shot", 3, 1, "", 1, Collective::gather, 1},
    {"binomial_tree_gather_6_root_1.txt", "binomial_tree", 6, 1, "", 1, Collective::gather, 1},
    {"linear_broadcast_3_root_1.txt", "linear", 3, 1, "", 1, Collective::broadcast, 1},
    {"linear_reduce_3_root_1.txt", "linear", 3, 1, "", 1, Collective::reduce, 1},
    {"linear_gather_3_root_1.txt", "linear", 3, 1, "", 1, Collective::gather, 1},
    {"one_shot_scatter_3_root_1.txt", "one_shot", 3, 1, "", 1, Collective::scatter, 1},
    {"binomial_tree_scatter_6_root_1.txt", "binomial_tree", 6, 1, "", 1, Collective::scatter, 1},
    {"linear_scatter_3_root_1.txt", "linear", 3, 1, "", 1, Collective::scatter, 1},
    {"linear_ahead_gather_3_root_1.txt", "linear_ahead", 3, 1, "", 1, Collective::gather, 1},
    {"linear_ahead_scatter_3_root_1.txt", "linear_ahead", 3, 1, "", 1, Collective::scatter, 1},
    {"one_shot_barrier_3.txt", "one_shot", 3, 1, "", 1, Collective::barrier},
    {"dissemination_barrier_5.txt", "dissemination", 5, 1, "", 1, Collective::barrier},
    {"ring_all_gather_3_channels_2.txt", "ring", 3, 2, "", 1, Collective::all_gather},
};

TEST_CASE("schedules are those of the golden texts", "[schedule]") {
    for (const Golden& golden : goldens) {
        const Algorithm* row = registry::find_algorithm(golden.algorithm, golden.collective);
        const std::string expansion = golden.expansion;
        std::vector<Schedule> schedules;
        for (int rank = 0; rank < golden.ranks; ++rank) {
            Schedule schedule = row->build(golden.layout(rank), {.channels = golden.channels, .root = golden.root});
            if (expansion == "staged") schedule = expand(schedule, {});
            if (expansion == "readable=0,2") schedule = expand(schedule, mode_of(Way::mixed, golden.ranks));
            if (expansion == "direct") schedule = expand(schedule, mode_of(Way::direct, golden.ranks));
            if (expansion == "pipelined=4") schedule = expand_pipelined(schedule, {}, 4);
            schedules.push_back(std::move(schedule));
        }
        INFO(golden.file << ": weft schedule build " << golden.algorithm << " --collective "
                         << name_of(golden.collective) << " --root " << std::max(0, golden.root) << " --ranks "
                         << golden.ranks << " --hosts " << golden.hosts << " --channels " << golden.channels
                         << (expansion.empty() ? "" : " --expand ") << expansion << " -o FILE");
        const std::string text = file_text(golden.file);
        CHECK(write_text(schedules) == text);
        const auto read = read_texts(text);
        REQUIRE(read.ok());
        CHECK(*read == schedules);
    }
}

TEST_CASE("a set of schedules from a file is proved in every way it can run", "[schedule]") {
    for (const Golden& golden : goldens) {
        const auto schedules = read_texts(file_text(golden.file));
        REQUIRE(schedules.ok());
        const bool readable = std::string(golden.expansion) == "readable=0,2";
        Proved proved;
        const Status status =
            check_set(*schedules, readable ? mode_of(Way::mixed, golden.ranks) : DirectMode(), {}, &proved);
        INFO(golden.file << ": " << status.sentence());
        CHECK(status.ok());
        CHECK(proved.steps > 0);
    }
}
