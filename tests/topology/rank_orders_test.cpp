// Ring orders and trees of a job's ranks: what algorithms do with them is proved.
#include "topology/search/rank_orders.hpp"

#include <algorithm>

#include "src/checker/checker.hpp"
#include "src/registry.hpp"
#include "tests/catch.hpp"
#include "tests/topology/channels.hpp"
#include "tests/topology/machines.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

TEST_CASE("ring algorithms on found orders are right", "[topology]") {
    for (const auto& [name, copies] :
         {std::pair("dgx1_v100", 1), std::pair("pcie_4_gpus", 2), std::pair("dgx_h100", 2)}) {
        const Graph graph = read_machine(name).graph;
        const auto job = job_of_all(graph, copies);
        REQUIRE(job.ok());
        const auto found = search(*job);
        REQUIRE(found.ok());
        Layout layout{found->ranks, 0, hosts_in_blocks(found->ranks, copies)};
        take_rings(*found, layout);
        for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter,
                                            Collective::broadcast, Collective::reduce}) {
            INFO(name << ", " << name_of(collective));
            const Algorithm* ring = registry::find_algorithm("ring", collective);
            REQUIRE(ring);
            const bool rooted = collective == Collective::broadcast || collective == Collective::reduce;
            std::vector<Schedule> schedules;
            for (int rank = 0; rank < layout.ranks; ++rank) {
                Layout seen = layout;
                seen.rank = rank;
                schedules.push_back(ring->schedule(seen, {.channels = 3, .root = rooted ? 1 : -1}));
            }
            const Status status = check_set(schedules);
            INFO(status.sentence());
            CHECK(status.ok());
        }
    }
}

TEST_CASE("trees: chains within machines, and between machines an inner rank of one tree is a leaf of the other",
          "[topology]") {
    const Graph graph = read_machine("dgx_h100").graph;
    const auto job = job_of_all(graph, 6);
    REQUIRE(job.ok());
    const auto found = search(*job);
    REQUIRE(found.ok());
    const auto all = trees(*found);
    REQUIRE(all.size() == 8);
    std::vector<int> children(size_t(found->ranks), 0);
    for (size_t tree = 0; tree < all.size(); ++tree) {
        std::vector<int> here(size_t(found->ranks), 0);
        for (size_t rank = 0; rank < all[tree].parent.size(); ++rank) {
            const int32_t parent = all[tree].parent[rank];
            if (parent < 0) continue;
            if (parent / 8 == int32_t(rank) / 8) continue;
            ++here[size_t(parent)];
            // Between machines only ranks of one rail meet.
            CHECK(parent % 8 == int32_t(rank) % 8);
        }
        for (const int count : here) CHECK(count <= 2);
    }
    // One machine: the ring, cut open.
    const auto one = job_of_all(graph, 1);
    const auto alone = search(*one);
    REQUIRE(alone.ok());
    const auto order = ring_orders(*alone)[0];
    const auto chain = trees(*alone)[0].parent;
    for (size_t i = 1; i < order.size(); ++i) CHECK(chain[size_t(order[i])] == order[i - 1]);
}

TEST_CASE("a layout without orders has the rings that it had", "[topology]") {
    for (int rank = 0; rank < 6; ++rank) {
        const Layout plain{6, rank, {0, 1, 0, 1, 0, 1}};
        Layout given = plain;
        given.ring_orders = {plain.host_major()};
        CHECK(given.ring(3).next == plain.ring(3).next);
        CHECK(given.ring(3).previous == plain.ring(3).previous);
        CHECK(given.ring(3).position == plain.ring(3).position);
        CHECK(plain.ring_order(0) == plain.host_major());
    }
}
