// Graphs of machines as fabrics of the simulator: the links of messages, the cost of narrow ones, and one machine that
// stands for all equal ones.
#include "topology/fabric/graph_fabric.hpp"

#include <algorithm>
#include <set>

#include "src/registry.hpp"
#include "src/schedule/builder.hpp"
#include "src/simulator/degraded_fabric.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/simulated.hpp"
#include "tests/topology/machines.hpp"
#include "topology/search/rank_orders.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using topology::GraphFabric;

namespace {

struct Machine {
    explicit Machine(const char* name, int copies = 1, int ranks = 0)
        : graph(read_machine(name).graph), job(*topology::job_of_ranks(graph, copies, ranks)) {}
    GraphFabric fabric() const { return *GraphFabric::make(job, topology::host_kind_like(graph)); }
    topology::Graph graph;
    topology::Job job;
};

std::vector<std::string> names_of(const weft::internal::Fabric& fabric, const weft::internal::Route& route) {
    std::vector<std::string> names;
    for (const int link : route.links) names.push_back(fabric.link_name(link));
    return names;
}

// Pairs of ranks, each of whose first sends to the second at once.
SimulatedCall pairs(int ranks, const std::vector<std::pair<int, int>>& pairs, size_t bytes) {
    SimulatedCall call;
    call.bytes = call.tile_bytes = bytes;
    call.schedule = [ranks, pairs](int rank) {
        Builder schedule("pairs", Collective::broadcast, {ranks, rank, {}}, {.fifo_depth = 1, .root = 0});
        for (const auto& [from, to] : pairs)
            if (rank == from)
                schedule.block({.target = to}).send({0});
            else if (rank == to)
                schedule.block({.source = from}).recv({0});
        return schedule.finish();
    };
    return call;
}

}  // namespace

TEST_CASE("messages take the links of the graph between their ends", "[topology]") {
    const Machine pci("pcie_4_gpus");
    const GraphFabric fabric = pci.fabric();
    CHECK(fabric.ranks() == 4);
    CHECK(names_of(fabric, fabric.route(0, 1)) ==
          std::vector<std::string>{"pci from gpu 0 (0000:18:00.0) to pci 0000:17:00.0",
                                   "pci from pci 0000:17:00.0 to gpu 1 (0000:19:00.0)"});
    CHECK(names_of(fabric, fabric.route(1, 3)) ==
          std::vector<std::string>{"pci from gpu 1 (0000:19:00.0) to pci 0000:17:00.0",
                                   "pci from pci 0000:17:00.0 to cpu 0", "sys from cpu 0 to cpu 1",
                                   "pci from cpu 1 to gpu 3 (0000:af:00.0)"});
    CHECK(names_of(fabric, fabric.local(2)) == std::vector<std::string>{"memory of gpu 2 (0000:86:00.0)"});
    const Machine bridge("a100_bridge");
    const GraphFabric bridged = bridge.fabric();
    CHECK(names_of(bridged, bridged.route(1, 0)) ==
          std::vector<std::string>{"nvlink from gpu 1 (0000:41:00.0) to gpu 0 (0000:21:00.0)"});
}

TEST_CASE("narrow links and shared links have the right cost", "[topology]") {
    const Machine machine("pcie_4_gpus");
    const GraphFabric fabric = machine.fabric();
    constexpr size_t bytes = 6'400'000;
    // NCCL's speeds: 12 GB/s for sixteen lanes of generation 3, half of it for eight.
    const auto us = [&](const std::vector<std::pair<int, int>>& some) {
        const double start_us = fabric.costs().start_us,
                     latency_us = fabric.route(some[0].first, some[0].second).latency_us;
        return simulated(fabric, pairs(4, some, bytes)).us - start_us - latency_us -
               double(bytes) / fabric.costs().copy_bytes_per_us;  // the receiver's copy
    };
    CHECK(us({{0, 1}}) == Approx(bytes / 12e3));
    CHECK(us({{2, 3}}) == Approx(bytes / 6e3));
    // One switch's way to the cpu and from there to the other serves both.
    CHECK(us({{0, 2}, {1, 3}}) ==
          Approx(bytes / std::min(6e3, fabric.bytes_per_us(*link_named(fabric, "sys from cpu 0 to cpu 1")) / 2))
              .epsilon(0.02));
    CHECK(us({{0, 1}, {2, 3}}) == Approx(bytes / 6e3));
}

TEST_CASE("to other machines each rank takes the port that is near, of equal ones in turns", "[topology]") {
    for (const char* name : {"dgx_a100", "dgx_h100"}) {
        CAPTURE(name);
        const Machine machine(name, 2);
        const GraphFabric fabric = machine.fabric();
        REQUIRE(fabric.ranks() == 16);
        std::set<int> ports_out, ports_in;
        for (int rank = 0; rank < 8; ++rank) {
            const weft::internal::Route route = fabric.route(rank, 8 + rank);
            CHECK_FALSE(route.driven);
            for (const int link : route.links) {
                const std::string text = fabric.link_name(link);
                // Of the way up no cpu is part.
                CHECK(text.find("cpu") == text.npos);
                if (text.find("net from nic") == 0) ports_out.insert(link);
                if (text.find("net from port") == 0) ports_in.insert(link);
            }
        }
        CHECK(ports_out.size() == 8);
        CHECK(ports_in.size() == 8);
    }
    CHECK(Machine("dgx_h100", 2).fabric().hosts().size() == 16);
    CHECK(Machine("dgx_h100").fabric().hosts().empty());
}

TEST_CASE("ranks without GPUs sit on cores, spread over the cpus", "[topology]") {
    const Machine machine("cpu_two_sockets", 1, 4);
    const GraphFabric fabric = machine.fabric();
    CHECK(names_of(fabric, fabric.route(0, 1)) == std::vector<std::string>{"core of rank 0", "memory of cpu 0"});
    const std::vector<std::string> far = names_of(fabric, fabric.route(1, 2));
    CHECK(std::find(far.begin(), far.end(), "sys from cpu 0 to cpu 1") != far.end());
    CHECK(std::find(far.begin(), far.end(), "memory of cpu 1") != far.end());
    // All of them: as many as the masks of the file have threads, for it names no cores.
    CHECK(Machine("cpu_two_sockets").fabric().ranks() == 64);
    const auto refused = topology::job_of_ranks(machine.graph, 1, 65);
    REQUIRE_FALSE(refused);
    CHECK_EXPECTED(refused, "[topology.placement] 65 ranks");
    const Machine gpus("pcie_4_gpus", 2, 3);
    CHECK(gpus.fabric().ranks() == 6);
    CHECK_FALSE(topology::job_of_ranks(gpus.graph, 1, 5));
}

TEST_CASE("one or two of equal machines stand for all", "[topology]") {
    const auto [name, copies, ranks, by_two] =
        GENERATE(table<const char*, int, int, bool>({{"dgx_h100", 3, 0, false},
                                                     {"dgx_a100", 4, 0, true},
                                                     {"pcie_4_gpus", 4, 0, true},
                                                     {"cpu_two_sockets", 3, 4, false},
                                                     {"grace_hopper", 5, 0, false}}));
    const Machine machine(name, copies, ranks);
    GraphFabric fabric = machine.fabric();
    if (by_two) fabric.turn_by_two();
    const int turn = fabric.ranks() / copies * (by_two ? 2 : 1);
    CHECK(fabric.rotation() == turn);
    Layout layout{fabric.ranks(), 0, fabric.hosts()};
    const auto channels = topology::search(machine.job);
    REQUIRE(channels);
    if (by_two == channels->alternates) topology::take_rings(*channels, layout);
    for (const char* algorithm : {"ring", "halving_doubling", "two_level_ring"}) {
        if (registry::find_algorithm(algorithm, Collective::all_reduce)->refusal(layout)) continue;
        CAPTURE(name, algorithm);
        SimulatedCall call = all_reduce(algorithm, layout, size_t(fabric.ranks()) * 64 * 120);
        call.tile_bytes = call.bytes;
        call.symmetry = Symmetry::exact;
        const Simulation few = simulated(fabric, call);
        if (std::string_view(algorithm) == "ring") CHECK(few.ranks_simulated == turn);
        call.symmetry = Symmetry::none;
        const Simulation all = simulated(fabric, call);
        CHECK(all.ranks_simulated == fabric.ranks());
        CHECK(few.us == Approx(all.us).epsilon(1e-9));
        for (int rank = 0; rank < fabric.ranks(); ++rank)
            CHECK(few.ranks[size_t(rank)].end_us == Approx(all.ranks[size_t(rank)].end_us).epsilon(1e-9));
        CHECK(few.links[0].load == Approx(all.links[0].load).epsilon(1e-9));
    }
}

TEST_CASE("around a link that is gone messages go another way, if there is one", "[topology]") {
    const Machine machine("a100_bridge");
    const GraphFabric fabric = machine.fabric();
    const Layout layout{2, 0, {}};
    const SimulatedCall call = all_reduce("ring", layout, 1 << 20);
    const char* bridge = "nvlink from gpu 0 (0000:21:00.0) to gpu 1 (0000:41:00.0)";
    Faults faults;
    faults.failed_links = {*link_named(fabric, bridge)};
    const DegradedFabric degraded(fabric, faults);
    CHECK(names_of(degraded, degraded.route(0, 1)) ==
          std::vector<std::string>{"pci from gpu 0 (0000:21:00.0) to cpu 0", "pci from cpu 0 to gpu 1 (0000:41:00.0)"});
    CHECK(names_of(degraded, degraded.route(1, 0)) == names_of(fabric, fabric.route(1, 0)));
    CHECK(simulated(degraded, call).us > simulated(fabric, call).us);
    faults.failed_links.push_back(*link_named(fabric, "pci from cpu 0 to gpu 1 (0000:41:00.0)"));
    const auto cut_off = simulate(DegradedFabric(fabric, faults), call);
    REQUIRE_FALSE(cut_off);
    CHECK_EXPECTED(cut_off, "[schedule.fabric] rank 0 to rank 1");
}

TEST_CASE("a link gone in one machine of several leaves the others as they are", "[topology]") {
    const Machine machine("dgx_a100", 3);
    const GraphFabric fabric = machine.fabric();
    const weft::internal::Route whole = fabric.route(8, 17);
    const auto port = std::find_if(whole.links.begin(), whole.links.end(),
                                   [&](int link) { return fabric.link_name(link).find("net from nic") == 0; });
    REQUIRE(port != whole.links.end());
    Faults faults;
    faults.failed_links = {*port};
    const DegradedFabric degraded(fabric, faults);
    const weft::internal::Route around = degraded.route(8, 17);
    CHECK(around.exists);
    CHECK(std::find(around.links.begin(), around.links.end(), *port) == around.links.end());
    CHECK(degraded.route(0, 9).links == fabric.route(0, 9).links);
    CHECK(degraded.rotation() == fabric.ranks());
    const SimulatedCall call = all_reduce("ring", {24, 0, fabric.hosts()}, 24 * 64 * 1000);
    CHECK(simulated(degraded, call).ranks_simulated == 24);
}
