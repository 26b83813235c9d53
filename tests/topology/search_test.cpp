// Channels that are found: on machines that people have against what their links can carry, on random ones against brute
// force, and for many hosts at the cost of one.
#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/topology/channels.hpp"
#include "tests/topology/machines.hpp"
#include "topology/model/connect.hpp"
#include "topology/search/rank_orders.hpp"
#include "topology/search/search_text.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

Channels searched(const Graph& graph, int copies, const SearchOptions& options = {}) {
    const auto job = job_of_all(graph, copies);
    REQUIRE(job.ok());
    auto found = search(*job, options);
    INFO(found.status().sentence());
    REQUIRE(found.ok());
    INFO(write_text(*found));
    check_channels_are_valid(*found);
    return std::move(*found);
}

Status refusal(const Graph& graph, int copies) {
    const auto job = job_of_all(graph, copies);
    return job ? search(*job).status().copy() : job.status().copy();
}

// The most cycles through all GPUs over whole NVLinks, each link `times` as many: every set of cycles is tried.
int most_cycles(const std::vector<std::vector<int>>& links, int times) {
    const size_t gpus = links.size();
    std::vector<std::vector<int>> cycles, left = links;
    for (auto& row : left)
        for (int& count : row) count *= times;
    std::vector<int> order(gpus);
    std::iota(order.begin(), order.end(), 0);
    do {
        bool joined = true;
        for (size_t i = 0; i < gpus; ++i) joined &= links[size_t(order[i])][size_t(order[(i + 1) % gpus])] > 0;
        if (joined) cycles.push_back(order);
    } while (std::next_permutation(order.begin() + 1, order.end()));
    const auto use = [&](const std::vector<int>& cycle, int count) {
        bool fits = true;
        for (size_t i = 0; i < gpus; ++i) fits &= (left[size_t(cycle[i])][size_t(cycle[(i + 1) % gpus])] -= count) >= 0;
        return fits;
    };
    const std::function<int(size_t)> most_from = [&](size_t first) {
        int most = 0;
        for (size_t i = first; i < cycles.size(); ++i) {
            if (use(cycles[i], 1)) most = std::max(most, 1 + most_from(i));
            use(cycles[i], -1);
        }
        return most;
    };
    return most_from(0);
}

}  // namespace

TEST_CASE("on each machine of the set channels have at least 95 % of the links' bandwidth", "[topology]") {
    struct Row {
        const char* machine;
        int copies;
        double found_gbs, bound_gbs;
        int channels;
    };
    const Row rows[] = {{"dgx1_v100", 1, 120, 120, 6},
                        {"dgx1_v100", 2, 48, 48, 4},
                        {"dgx_a100", 1, 240, 240, 6},
                        {"dgx_a100", 2, 192, 192, 8},
                        {"dgx_h100", 1, 370.8, 370.8, 8},
                        {"dgx_h100", 2, 384, 384, 8},
                        {"pcie_4_gpus", 1, 6, 6, 1},
                        {"pcie_4_gpus", 2, 6, 6, 1},
                        {"a100_bridge", 1, 240, 240, 6},
                        {"a100_bridge", 2, 24, 24, 1},
                        {"gb200_nvl72_slice", 1, 721.8, 721.8, 16},
                        {"gb200_nvl72_slice", 2, 384, 384, 8},
                        {"grace_hopper", 2, 48, 48, 1},
                        {"cloud_vm_partial", 1, 12, 12, 1},
                        {"container_half", 1, 22, 22, 1},
                        {"container_half", 2, 1.25, 1.25, 1},
                        {"cpu_two_sockets", 1, 22, 22, 1},
                        {"cpu_two_sockets", 2, 4.375, 4.375, 7}};
    for (const Row& row : rows) {
        INFO(row.machine << ", " << row.copies);
        const auto machine = read_machine(row.machine);
        const Channels found = searched(machine.graph, row.copies);
        CHECK(found.found_gbs == Approx(row.found_gbs));
        CHECK(found.bound_gbs == Approx(row.bound_gbs));
        CHECK(found.channels == row.channels);
        CHECK(found.ratio() >= 0.95);
        // Far links beside near ones, too: all that leads anywhere.
        const Channels with_all = searched(machine.graph, row.copies, {.gain_least = 0});
        CHECK(with_all.found_gbs >= 0.95 * with_all.bound_of_all_gbs);
        // No clock: a fast machine and a slow one take as many steps, some 15 million a tenth of a second.
        CHECK(found.steps <= 20'000'000);
    }
}

TEST_CASE("one GPU needs no links, and a cloud's NICs without ports lead nowhere", "[topology]") {
    const Channels alone = searched(read_machine("grace_hopper").graph, 1);
    CHECK(alone.channels == 1);
    CHECK(alone.found_gbs == 0);
    CHECK(ring_orders(alone) == std::vector<std::vector<int32_t>>{{0}});
    CHECK_ERROR(refusal(read_machine("cloud_vm_partial").graph, 2), "topology.no-path");
    const Graph graph = read_machine("dgx_h100").graph;
    CHECK_ERROR(refusal(graph, 0), "topology.placement");
    CHECK_EXPECTED(job_of_all(graph, 1, {0, 9}), "[topology.placement] gpu 9");
    const auto check_refused = [](const Job& job, const std::string& part) {
        CHECK_EXPECTED(search(job), "[topology.placement] " + part);
    };
    check_refused({{&graph}, {0}, {{0, 1, -1, -1}}}, "rank 0");
    check_refused({{&graph}, {0}, {{1, 0, -1, -1}}}, "host set 1");
    check_refused({{&graph}, {1}, {{0, 0, -1, -1}}}, "graph 1");
    check_refused({{&graph}, {0}, {{0, 9999, -1, -1}}}, "node 9999");
    check_refused({{&graph}, {0}, {}}, "no ranks");
}

TEST_CASE("4096 hosts take the steps of two, and traffic leaves and arrives by the same NIC", "[topology]") {
    const Graph graph = read_machine("dgx_h100").graph;
    const Channels two = searched(graph, 2), many = searched(graph, 4096);
    CHECK(many.steps == two.steps);
    CHECK(many.kinds.size() == 1);
    CHECK(many.kinds[0].machines == 4096);
    CHECK(many.kinds[0].packing.uses == two.kinds[0].packing.uses);
    CHECK(many.ranks == 32'768);
    REQUIRE(many.alternates);
    // The first rank of each machine sits next to the NIC by which the last of the one before has left.
    const auto orders = ring_orders(many);
    for (const auto& order : orders)
        for (size_t rank = 8; rank < order.size(); rank += 8) CHECK(order[rank] - order[rank - 1] == 8);
    const Channels rails = searched(graph, 2, {.rails = RailUse::only});
    CHECK(rails.found_gbs == Approx(370.8));  // NVLinks carry what passes through another GPU's NIC
    CHECK(rails.kinds[0].graphs[0].type_inter == PathClass::pxn);
    for (const PackedRing& ring : rails.kinds[0].packing.rings) CHECK(ring.entry == ring.exit);
    CHECK(searched(graph, 2, {.rails = RailUse::any}).found_gbs == Approx(384));
}

TEST_CASE("NICs are chosen by nearness", "[topology]") {
    for (const auto& [name, nearest] : {std::pair("dgx1_v100", PathClass::pix), std::pair("dgx_a100", PathClass::pix),
                                        std::pair("dgx_h100", PathClass::pix), std::pair("pcie_4_gpus", PathClass::phb),
                                        std::pair("grace_hopper", PathClass::p2c)}) {
        INFO(name);
        const Channels found = searched(read_machine(name).graph, 2);
        CHECK(std::string(name_of(found.kinds[0].graphs[0].type_inter)) == name_of(nearest));
    }
}

TEST_CASE("16 GPUs and 8 NICs on NVSwitches, or on a mesh", "[topology]") {
    for (const bool switched : {true, false}) {
        Graph graph;
        REQUIRE(graph.host("").ok());
        const int cpus[] = {add_cpu(graph, 0), add_cpu(graph, 1)};
        std::vector<int> gpus;
        for (int i = 0; i < 8; ++i) {
            Node bridge;
            bridge.parent = cpus[i / 4];
            bridge.busid = "0000:0" + std::to_string(1 + i) + ":00.0";
            bridge.pci.link_speed = "16.0 GT/s PCIe";
            bridge.pci.link_width = 16;
            const auto added = graph.add(bridge);
            REQUIRE(added.ok());
            for (int j = 0; j < 2; ++j) gpus.push_back(add_gpu(graph, *added, 2 * i + j));
            add_port(graph, *added, i, 100'000);
        }
        for (int i = 0; i < 16; ++i) {
            if (switched)
                REQUIRE(graph.state({LinkKind::nvlink, gpus[size_t(i)], "0000:ff:00.0", "0x068000", 6, 0, {}}).ok());
            else
                for (const int stride : {1, 4, 7})
                    add_nvlinks(graph, gpus[size_t(i)], gpus[size_t((i + stride) % 16)], 1);
        }
        std::vector<std::string> notes;
        REQUIRE(connect(graph, notes).ok());
        for (const int copies : {1, 2}) {
            INFO((switched ? "switched " : "mesh ") << copies);
            const Channels found = searched(graph, copies);
            INFO(write_text(found));
            CHECK(found.ratio() >= 0.95);
            CHECK(found.steps <= 60'000'000);  // well below a second
        }
    }
}

TEST_CASE("cpu ranks stand by NUMA domain, cache and core", "[topology]") {
    const Graph graph = read_machine("cpu_two_sockets").graph;
    const int one = node_named(graph, "cpu0"), other = node_named(graph, "cpu1");
    // Dealt out in turn, as some launchers do.
    const Job job{
        {&graph}, {0}, {{0, one, 1, 8}, {0, other, 2, 16}, {0, one, 0, 3}, {0, other, 2, 17}, {0, one, 0, 1}}};
    const auto found = search(job);
    REQUIRE(found.ok());
    check_channels_are_valid(*found);
    CHECK(ring_orders(*found) == std::vector<std::vector<int32_t>>{{4, 2, 0, 1, 3}});
    Layout layout{5, 2};
    take_rings(*found, layout);
    CHECK(layout.ring(0).previous == 4);
    CHECK(layout.ring(7).next == 0);
    CHECK(layout.ring_orders == std::vector<std::vector<int32_t>>{{0, 1, 3, 4, 2}});  // the same ring
    CHECK(layout.ring(0).position == 4);
}

TEST_CASE("machines of several kinds have the same channels, as wide as the narrowest allows", "[topology]") {
    const Graph older = read_machine("dgx_a100").graph, newer = read_machine("dgx_h100").graph;
    Job job{{&older, &newer}, {0, 1, 0, 1}, {}};
    for (int set = 0; set < 4; ++set)
        for (const int gpu : job.graphs[size_t(job.graph_of[size_t(set)])]->of_kind(NodeKind::gpu))
            job.locations.push_back({set, gpu, unknown, unknown});
    const auto found = search(job);
    REQUIRE(found.ok());
    INFO(write_text(*found));
    check_channels_are_valid(*found);
    CHECK(found->kinds.size() == 2);
    CHECK(found->bound_gbs == Approx(192));
    CHECK(found->ratio() >= 0.95);
    CHECK(found->kinds[0].packing.rings.size() == found->kinds[1].packing.rings.size());
    CHECK(found->bottleneck == 0);
}

TEST_CASE("random machines: no link is overcharged, the bound holds, and a second search finds the same",
          "[topology]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    for (int round = 0; round < (sanitized ? 6 : 60); ++round) {
        const int gpus = 2 + int(random() % 6), copies = 1 + int(random() % 3);
        const Graph graph = random_machine(random, gpus, true);
        INFO("round " << round << ", " << gpus << " GPUs, " << copies << " machines");
        for (const double gain : {0.5, 0.0}) {
            const Channels found = searched(graph, copies, {.gain_least = gain, .steps_most = 4'000'000});
            const Channels again = searched(graph, copies, {.gain_least = gain, .steps_most = 4'000'000});
            CHECK(write_text(found) == write_text(again));
            CHECK(ring_orders(found) == ring_orders(again));
        }
    }
}

TEST_CASE("small meshes: as good as brute force over whole links, or better by parts of them", "[topology]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    double worst = 1;
    for (int round = 0; round < (sanitized ? 15 : 60); ++round) {
        const size_t gpus = 3 + random() % 3;
        Graph graph;
        REQUIRE(graph.host("").ok());
        const int cpu = add_cpu(graph, 0);
        std::vector<int> nodes;
        // PCI so narrow that it is not worth a channel.
        for (size_t i = 0; i < gpus; ++i) nodes.push_back(add_gpu(graph, cpu, int(i), "2.5 GT/s PCIe"));
        std::vector<std::vector<int>> links(gpus, std::vector<int>(gpus));
        for (size_t i = 0; i < gpus; ++i)
            for (size_t j = 0; j < i; ++j) {
                links[i][j] = links[j][i] = int(random() % 3);
                if (links[i][j] > 0) add_nvlinks(graph, nodes[i], nodes[j], links[i][j]);
            }
        std::vector<std::string> notes;
        REQUIRE(connect(graph, notes).ok());
        const int most = most_cycles(links, 1);
        if (most == 0) continue;
        INFO("round " << round << ", " << gpus << " GPUs, " << most << " cycles");
        const Channels found = searched(graph, 1, {.steps_most = 10'000'000});
        CHECK(found.found_gbs >= 20 * most * (1 - 1e-9));
        worst = std::min(worst, found.ratio());
    }
    CHECK(worst > 0.6);  // the cut bound cannot always be reached: a path of links has no cycle
}
