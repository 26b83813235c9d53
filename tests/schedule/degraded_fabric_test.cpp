// Slow and missing parts of a fabric have the right cost, and the events of a running simulation add up.
#include "src/simulator/degraded_fabric.hpp"

#include <map>

#include "src/schedule/builder.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/schedule/simulated.hpp"
#include "tests/schedule/test_fabrics.hpp"

namespace weft::internal {
namespace {

std::string objection(const Fabric& fabric, const SimulatedCall& call) {
    const auto found = simulate(fabric, call);
    REQUIRE_FALSE(found);
    CHECK(found.status().code() == weftInvalidArgument);
    return found.status().sentence();
}

}  // namespace

TEST_CASE("a slow link is one of less bandwidth", "[simulator]") {
    const unsigned seed = GENERATE(range(1u, 5u));
    const char* name = GENERATE("ring", "halving_doubling", "double_binary_tree", "two_shot");
    CAPTURE(seed, name);
    const SimulatedCall call = all_reduce(name, {6, 0, {}}, 600'000);
    PairsFabric fabric = PairsFabric::random(6, 6, seed);
    const int from = int(seed) % 6, to = (from + 1) % 6;
    Faults faults;
    faults.slow_links[from * 6 + to] = 3;
    const DegradedFabric degraded(fabric, faults);
    PairsFabric slower = fabric;
    slower.quicken(from, to, 1.0 / 3);
    CHECK(degraded.bytes_per_us(from * 6 + to) == Approx(slower.bytes_per_us(from * 6 + to)));
    CHECK(simulated(degraded, call).us == Approx(simulated(slower, call).us).epsilon(1e-12));
}

TEST_CASE("a slow rank takes longer for its steps, and no other rank does", "[simulator]") {
    PairsFabric fabric(2, 1000, 3);
    fabric.own.step_us = 0.5;
    fabric.own.copy_bytes_per_us = 800;
    fabric.own.reduce_bytes_per_us = 400;
    SimulatedCall call;
    call.bytes = call.tile_bytes = 64'000;
    call.schedule = [](int rank) {
        Builder schedule("one_way", Collective::broadcast, {2, rank, {}}, {.fifo_depth = 1, .root = 0});
        if (rank == 0)
            schedule.block({.target = 1}).send({0});
        else
            schedule.block({.source = 0}).recv({0});
        return schedule.finish();
    };
    const auto us = [&](double sender, double receiver) {
        Faults faults;
        faults.slow_ranks = {{0, sender}, {1, receiver}};
        return simulated(DegradedFabric(fabric, faults), call).us;
    };
    CHECK(us(1, 1) == Approx(0.5 + 80 + 3 + 0.5 + 80));
    CHECK(us(2, 1) == Approx(1 + 160 + 3 + 0.5 + 80));
    CHECK(us(1, 2) == Approx(0.5 + 80 + 3 + 1 + 160));
}

// A degraded machine has no symmetry, so every rank must be simulated.
TEST_CASE("where something is degraded every rank is simulated", "[simulator]") {
    const HostsFabric fabric(*find_host_kind(GENERATE("dgx-h100", "cpu-10g")), 3, 4);
    // Of the second host.
    const char* out = fabric.costs().one_thread ? "network out of host 1" : "network out of rank 7";
    for (const char* name : {"ring", "halving_doubling", "two_level_ring"}) {
        SimulatedCall call = all_reduce(name, {12, 0, fabric.hosts()}, 12 * 64 * 120);
        call.tile_bytes = call.bytes;
        const Simulation whole = simulated(fabric, call);
        CHECK(whole.ranks_simulated == 4);
        for (const bool slow_rank : {true, false}) {
            CAPTURE(name, slow_rank);
            Faults faults;
            if (slow_rank)
                faults.slow_ranks[5] = 4;
            else
                faults.slow_links[*link_named(fabric, out)] = 1000;
            const DegradedFabric degraded(fabric, faults);
            const Simulation found = simulated(degraded, call);
            CHECK(found.ranks_simulated == 12);
            // A slow rank may hide behind a slow network.
            CHECK((slow_rank ? found.us >= whole.us : found.us > 2 * whole.us));
            call.symmetry = Symmetry::none;
            CHECK(simulated(degraded, call).us == found.us);
            call.symmetry = Symmetry::even;
        }
    }
}

TEST_CASE("a failed link without another route is an error", "[simulator]") {
    const HostsFabric fabric(*find_host_kind("dgx-h100"), 2, 4);
    const auto without = [&](const char* name, const char* algorithm) {
        Faults faults;
        faults.failed_links.push_back(*link_named(fabric, name));
        const Layout layout{8, 0, fabric.hosts()};
        return objection(DegradedFabric(fabric, faults), all_reduce(algorithm, layout, 1 << 20));
    };
    CHECK(without("network out of rank 3", "ring") == "no route connects rank 3 to rank 4");
    CHECK(without("memory of rank 2", "ring") == "no route connects rank 2 to the memory of rank 2");
    CHECK(without("NVLink into rank 5", "two_level_ring").find("no route connects rank") == 0);
    const auto unknown = link_named(fabric, "network of rank 3");
    REQUIRE_FALSE(unknown);
    CHECK_ERROR(unknown, "schedule.fabric");
    for (const char* name : {"`network of rank 3`", "`NVLink out of rank 0`"})
        CHECK(unknown.status().sentence().find(name) != std::string::npos);
}

TEST_CASE("steps are reported with their waits, one after the other in a block", "[simulator]") {
    const HostsFabric fabric(*find_host_kind(GENERATE("dgx-h100", "cpu-10g")), 2, 4);
    for (const char* name : {"ring", "double_binary_tree", "two_level_ring"}) {
        CAPTURE(name);
        SimulatedCall call = all_reduce(name, {8, 0, fabric.hosts()}, 3'000'000);
        call.symmetry = Symmetry::none;
        std::map<std::pair<int, int>, double> ends;
        int waited = 0, wrong = 0;
        call.observe = [&](const SimulatedStep& step) {
            double& end = ends[{step.rank, step.block}];
            wrong += step.ready_us != end || step.begin_us < step.ready_us || step.end_us < step.begin_us;
            wrong += (step.awaited == Awaited::nothing) != (step.begin_us == step.ready_us);
            wrong += size_t(step.step) >= step.of->instructions.size();
            waited += step.awaited == Awaited::message;
            end = step.end_us;
        };
        const Simulation found = simulated(fabric, call);
        CHECK(wrong == 0);
        CHECK(waited > 0);
        double last_us = 0;
        for (const auto& [block, end] : ends) last_us = std::max(last_us, end);
        CHECK(last_us + fabric.costs().start_us <= found.us * (1 + 1e-12));
    }
}

TEST_CASE("the reported traffic of links adds up to their bytes", "[simulator]") {
    const HostsFabric fabric(*find_host_kind(GENERATE("dgx-h100", "cpu-10g")), 2, 4);
    const Symmetry symmetry = GENERATE(Symmetry::none, Symmetry::even);
    struct Carried {
        double since_us = 0, bytes_per_us = 0, bytes = 0;
    };
    std::map<int, Carried> links;
    SimulatedCall call = all_reduce("ring", {8, 0, fabric.hosts()}, 8 * 64 * 1000);
    call.symmetry = symmetry;
    call.observe_load = [&](const SimulatedLoad& load) {
        Carried& link = links[load.link];
        link.bytes += link.bytes_per_us * (load.at_us - link.since_us);
        link.since_us = load.at_us;
        link.bytes_per_us = load.bytes_per_us;
        CHECK(load.bytes_per_us <= fabric.bytes_per_us(load.link) * (1 + 1e-9));
    };
    const Simulation found = simulated(fabric, call);
    REQUIRE(links.size() == found.links.size());
    for (const LinkUse& use : found.links) {
        Carried& link = links[use.link];
        link.bytes += link.bytes_per_us * (found.us - fabric.costs().start_us - link.since_us);
        CHECK(link.bytes == Approx(use.bytes).epsilon(1e-9));
    }
}

}  // namespace weft::internal
