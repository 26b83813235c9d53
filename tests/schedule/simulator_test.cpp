// The simulator against closed forms, against itself without its shortcuts, and over all algorithms.
#include "src/simulator/simulator.hpp"

#include "src/registry.hpp"
#include "src/schedule/builder.hpp"
#include "src/simulator/hosts_fabric.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/schedule/test_fabrics.hpp"

namespace weft::internal {
namespace {

Simulation simulated(const Fabric& fabric, const SimulatedCall& call) {
    auto found = simulate(fabric, call);
    INFO((found ? std::string() : std::string(found.status().sentence())));
    REQUIRE(found);
    // A call has ended when its last rank has.
    double last_us = 0;
    for (const auto& rank : found->ranks) last_us = std::max(last_us, rank.end_us);
    CHECK(found->us == Approx(fabric.costs().start_us + last_us));
    return std::move(*found);
}

SimulatedCall call_of(const Algorithm& row, Layout layout, size_t whole, int channels = 1) {
    SimulatedCall call;
    call.schedule = [&row, layout, channels](int rank) mutable {
        layout.rank = rank;
        return row.build(layout,
                         {.channels = channels, .root = facts_of(row.collective).rooted ? layout.ranks - 1 : -1});
    };
    const size_t parts = size_t(parts_of(row.collective, layout.ranks));
    call.bytes = (whole + parts - 1) / parts;
    return call;
}

SimulatedCall call_of(const char* name, int ranks, size_t whole) {
    return call_of(*registry::find_algorithm(name, Collective::all_reduce), {ranks, 0, {}}, whole);
}

// Rank 0 to rank 1, a tile a message.
SimulatedCall one_way(size_t bytes, size_t tile_bytes, int fifo_depth) {
    SimulatedCall call;
    call.bytes = bytes;
    call.tile_bytes = tile_bytes;
    call.schedule = [fifo_depth](int rank) {
        Builder schedule("one_way", Collective::broadcast, {2, rank, {}}, {.fifo_depth = fifo_depth, .root = 0});
        if (rank == 0)
            schedule.block({.target = 1}).send({0});
        else
            schedule.block({.source = 0}).recv({0});
        return schedule.finish();
    };
    return call;
}

}  // namespace

TEST_CASE("a message takes its latency and its bytes over the slowest link", "[simulator]") {
    PairsFabric fabric(2, 1000, 3);
    CHECK(simulated(fabric, one_way(64'000, 64'000, 1)).us == Approx(3 + 64));
    fabric.own.step_us = 0.5;
    fabric.own.start_us = 7;
    CHECK(simulated(fabric, one_way(64'000, 64'000, 1)).us == Approx(7 + 0.5 + 64 + 3 + 0.5));
    fabric.own.copy_bytes_per_us =
        500;  // slower than the link: at both ends, though the receiver's copy is a sum of none
    CHECK(simulated(fabric, one_way(64'000, 64'000, 1)).us == Approx(7 + 0.5 + 128 + 3 + 0.5 + 128));
}

TEST_CASE("with one slot the second message waits for the first one's credit", "[simulator]") {
    const PairsFabric fabric(2, 1000, 3);
    CHECK(simulated(fabric, one_way(128'000, 64'000, 1)).us == Approx(64 + 3 + 3 + 64 + 3));
    CHECK(simulated(fabric, one_way(128'000, 64'000, 2)).us == Approx(64 + 64 + 3));
}

namespace {

// Between hosts: a NIC carries the bytes of a slot. Rank 1 may be slow.
struct CarriedFabric : PairsFabric {
    explicit CarriedFabric(int ranks = 2, double latency_us = 3) : PairsFabric(ranks, 1000, latency_us) {
        turns = false;
    }
    Route route(int from, int to) const override {
        Route route = PairsFabric::route(from, to);
        route.driven = false;
        route.carrier_us = carrier_us;
        return route;
    }
    double slowness(int rank) const override { return rank == 1 ? slow : 1; }
    double slow = 1, carrier_us = 0;
};

}  // namespace

TEST_CASE("a slot that a processor sends is free when its bytes have left", "[simulator]") {
    CarriedFabric fabric;
    CHECK(simulated(fabric, one_way(128'000, 64'000, 1)).us == Approx(64 + 64 + 3));
    CHECK(simulated(fabric, one_way(128'000, 64'000, 2)).us == Approx(64 + 64 + 3));
}

TEST_CASE("no more than a window of messages lies with a receiver that is late", "[simulator]") {
    CarriedFabric fabric;
    fabric.own.copy_bytes_per_us = 1000;
    fabric.slow = 100;
    const int messages = Route::window + 4;
    const Simulation found = simulated(fabric, one_way(size_t(messages) * 64'000, 64'000, 1));
    // The last but one leaves when the third has been copied, 6400 us each, and that is known here.
    const double third_us = 64 + 64 + 3 + 3 * 6400 + 3;
    CHECK(found.ranks[0].end_us == Approx(third_us + 64 + 64));
    CHECK(found.us == Approx(64 + 64 + 3 + messages * 6400.0));
}

TEST_CASE("a rank's one thread carries one message after the other, those that go and those that come", "[simulator]") {
    const int others = GENERATE(1, 2, 7);
    const bool to_all = GENERATE(false, true);
    CarriedFabric fabric(others + 1, 6);
    fabric.carrier_us = 2;
    SimulatedCall call;
    call.bytes = 10'048;
    call.schedule = [&](int rank) {
        const Collective collective = to_all ? Collective::broadcast : Collective::reduce;
        Builder schedule("star", collective, {others + 1, rank, {}}, {.fifo_depth = 1, .root = 0});
        for (int other = 1; other <= others; ++other)
            if (rank == 0 && to_all)
                schedule.block({.target = other}).send({0});
            else if (rank == 0)
                schedule.block({.source = other}).recv({0}).to(Buffer::scratch);
            else if (rank == other && to_all)
                schedule.block({.source = 0}).recv({0});
            else if (rank == other)
                schedule.block({.target = 0}).send({0});
        return schedule.finish();
    };
    // One alone takes its latency, in which the threads at both ends have their parts.
    CHECK(simulated(fabric, call).us == Approx(10.048 + 6 + 2 * (others - 1)));
}

TEST_CASE("flows on one link have equal shares of it", "[simulator]") {
    const int others = GENERATE(1, 2, 5, 16);
    PairsFabric fabric(others + 1, 1000, 2);
    fabric.shared = true;
    SimulatedCall call;
    call.bytes = 10'048;
    call.schedule = [&](int rank) {
        Builder schedule("incast", Collective::reduce, {others + 1, rank, {}}, {.fifo_depth = 1, .root = 0});
        for (int from = 1; from <= others; ++from)
            if (rank == 0)
                schedule.block({.source = from}).recv({0}).to(Buffer::scratch);
            else if (rank == from)
                schedule.block({.target = 0}).send({0});
        return schedule.finish();
    };
    const Simulation found = simulated(fabric, call);
    CHECK(found.us == Approx(2 + others * 10.048));
    CHECK(found.links[0].load == Approx(others * 10.048 / found.us));
}

TEST_CASE("a ring takes 2(N-1) steps of an N-th of the buffer", "[simulator]") {
    const int ranks = GENERATE(2, 3, 7, 16);
    const PairsFabric fabric(ranks, 1000, 1.5);
    const size_t bytes = size_t(ranks) * 6400;
    const Simulation found = simulated(fabric, call_of("ring", ranks, bytes));
    CHECK(found.us == Approx(2 * (ranks - 1) * (1.5 + 6.4)));
    CHECK(found.message_bytes == Approx(2 * (ranks - 1) * double(bytes)));
    CHECK(found.messages == uint64_t(2 * (ranks - 1) * ranks));
    CHECK(found.ranks_simulated == 1);
    CHECK_FALSE(found.even);
    // Chunks of whole lines, as they are, take at most a line more.
    SimulatedCall odd = call_of("ring", ranks, bytes - 100);
    odd.symmetry = Symmetry::none;
    CHECK(simulated(fabric, odd).us == Approx(found.us).margin(2 * ranks * 0.064));
}

TEST_CASE("all algorithms come to an end, and links carry the bytes of the messages", "[simulator]") {
    for (const Algorithm& row : registry::algorithms())
        for (const int ranks : {1, 2, 3, 5, 8, 13})
            for (const int hosts : {1, 2, 3}) {
                if (hosts > ranks) continue;
                Layout layout = layout_in_blocks(ranks, hosts);
                if (row.refusal(layout)) continue;
                for (const size_t bytes : {1, 5000, 3'000'000}) {
                    if (test::sanitized && (ranks > 5 || bytes == 1)) continue;
                    CAPTURE(row.name, name_of(row.collective), ranks, hosts, bytes);
                    PairsFabric fabric(ranks, 1, 7);
                    fabric.turns = false;
                    fabric.own.step_us = 0.1;
                    fabric.own.copy_bytes_per_us = fabric.own.reduce_bytes_per_us = 5000;
                    SimulatedCall call = call_of(row, layout, bytes, 2);
                    const Simulation found = simulated(fabric, call);
                    CHECK(simulated(fabric, call).us == found.us);
                    CHECK(found.us > 0);
                    double carried = 0;
                    for (const LinkUse& each : found.links) carried += each.bytes;
                    if (call.schedule(0).shared_ranks.empty())
                        CHECK(carried == Approx(found.message_bytes));
                    else
                        CHECK(carried >= found.message_bytes * (1 - 1e-9));
                    fabric.own.one_thread = true;
                    CHECK(simulated(fabric, call).us > 0);
                }
            }
}

TEST_CASE("without latency twice the bandwidth is half the time, on any links", "[simulator]") {
    const unsigned seed = GENERATE(1u, 2u, 3u, 4u);
    const char* name = GENERATE("ring", "halving_doubling", "double_binary_tree", "all_pairs");
    CAPTURE(seed, name);
    PairsFabric fabric = PairsFabric::random(6, 6, seed);
    fabric.no_latency();
    const SimulatedCall call = call_of(name, 6, 500'000);
    const double slow_us = simulated(fabric, call).us;
    fabric.scale(2);
    CHECK(simulated(fabric, call).us == Approx(slow_us / 2));
}

// If no two messages share a link, an earlier event never makes another one later; a ring is such a case.
TEST_CASE("a faster link never makes a ring slower", "[simulator]") {
    const unsigned seed = GENERATE(range(1u, 9u));
    PairsFabric fabric = PairsFabric::random(7, 7, seed);
    const SimulatedCall call = call_of("ring", 7, 300'000);
    for (int from = 0; from < 7; ++from) {
        const double before_us = simulated(fabric, call).us;
        fabric.quicken(from, (from + 1) % 7, 3);
        CHECK(simulated(fabric, call).us <= before_us * (1 + 1e-12));
    }
}

namespace {

void same(const Simulation& few, const Simulation& all, double tolerance) {
    CHECK(few.us == Approx(all.us).epsilon(tolerance));
    CHECK(few.message_bytes == Approx(all.message_bytes).epsilon(tolerance));
    REQUIRE(few.ranks.size() == all.ranks.size());
    for (size_t rank = 0; rank < all.ranks.size(); ++rank) {
        CHECK(few.ranks[rank].end_us == Approx(all.ranks[rank].end_us).epsilon(tolerance));
        CHECK(few.ranks[rank].idle == Approx(all.ranks[rank].idle).epsilon(tolerance).margin(tolerance));
    }
    int links = 0;
    for (const LinkUse& each : few.links) links += each.alike;
    CHECK(links == int(all.links.size()));
    REQUIRE_FALSE(few.links.empty() != all.links.empty());
    if (!all.links.empty()) CHECK(few.links[0].load == Approx(all.links[0].load).epsilon(tolerance));
}

}  // namespace

TEST_CASE("on hosts that are alike one stands for all", "[simulator]") {
    const auto [kind, ranks_a_host, hosts] = GENERATE(table<const char*, int, int>(
        {{"dgx-h100", 8, 1}, {"dgx-a100", 4, 3}, {"dgx-h100", 1, 5}, {"cpu-10g", 3, 4}, {"cpu-10g", 6, 1}}));
    const HostsFabric fabric(*find_host_kind(kind), hosts, ranks_a_host);
    int shared = 0;
    for (const Algorithm& row : registry::algorithms()) {
        const Layout layout{fabric.ranks(), 0, fabric.hosts()};
        if (row.refusal(layout)) continue;
        CAPTURE(row.name, name_of(row.collective), kind, hosts);
        // Whole lines a chunk, in the last tile too: as many as any algorithm's chunks divide.
        SimulatedCall call = call_of(row, layout, size_t(fabric.ranks()) * 64 * 120 * 10, 2);
        call.tile_bytes = call.bytes / 2;
        if (call.schedule(0).span > 1) call.tile_bytes = call.bytes;
        call.symmetry = Symmetry::exact;
        const Simulation few = simulated(fabric, call);
        call.symmetry = Symmetry::none;
        const Simulation all = simulated(fabric, call);
        CHECK(all.ranks_simulated == fabric.ranks());
        if (few.ranks_simulated == fabric.ranks()) continue;
        ++shared;
        same(few, all, 1e-9);
    }
    CHECK(shared >= 4);
}

TEST_CASE("on random links that repeat one turn's ranks stand for all", "[simulator]") {
    const unsigned seed = GENERATE(1u, 2u, 3u);
    const auto [ranks, period] = GENERATE(table<int, int>({{12, 3}, {12, 1}, {15, 5}}));
    for (const char* name : {"ring", "halving_doubling", "all_pairs"}) {
        CAPTURE(seed, name, ranks, period);
        PairsFabric fabric = PairsFabric::random(ranks, period, seed);
        fabric.shared = seed == 3;
        fabric.own.step_us = 0.3;
        fabric.own.one_thread = seed == 2;
        SimulatedCall call = call_of(name, ranks, size_t(ranks) * 6400);
        const Simulation few = simulated(fabric, call);
        CHECK(few.ranks_simulated == period);
        call.symmetry = Symmetry::none;
        same(few, simulated(fabric, call), 1e-9);
    }
}

TEST_CASE("chunks that differ by a line are counted as their mean", "[simulator]") {
    const HostsFabric fabric(*find_host_kind("dgx-h100"), 4, 8);
    for (const char* name : {"ring", "halving_doubling", "two_level_ring", "two_level_halving_doubling"})
        for (const size_t bytes : {1000, 100'000, 10'000'000}) {
            CAPTURE(name, bytes);
            SimulatedCall call = call_of(*registry::find_algorithm(name, Collective::all_reduce),
                                         {fabric.ranks(), 0, fabric.hosts()}, bytes);
            call.symmetry = Symmetry::exact;
            CHECK(simulated(fabric, call).ranks_simulated == fabric.ranks());
            call.symmetry = Symmetry::even;
            const Simulation few = simulated(fabric, call);
            // Most chunks of a short message are empty. If each is a message by itself, that counts.
            const bool counts = bytes > 1000 || call.schedule(0).span > 1;
            CHECK(few.even == counts);
            CHECK(few.ranks_simulated == (counts ? 8 : 32));
            call.symmetry = Symmetry::none;
            CHECK(few.us == Approx(simulated(fabric, call).us).epsilon(bytes < 10'000'000 ? 0.3 : 0.02));
        }
}

TEST_CASE("empty chunks count as the mean if all ranks would take too long", "[simulator]") {
    // A rank with one thread does a step for each chunk, empty or not: that is the largest error.
    const auto [kind, error] = GENERATE(table<const char*, double>({{"dgx-h100", 0.01}, {"cpu-10g", 0.25}}));
    const HostsFabric fabric(*find_host_kind(kind), 32, 8);
    for (const char* name : {"ring", "two_level_ring"}) {
        CAPTURE(name, kind);
        SimulatedCall call =
            call_of(*registry::find_algorithm(name, Collective::all_reduce), {fabric.ranks(), 0, fabric.hosts()}, 2048);
        const Simulation all = simulated(fabric, call);
        CHECK(all.ranks_simulated == fabric.ranks());
        call.steps_most = 10'000;
        const Simulation few = simulated(fabric, call);
        CHECK(few.ranks_simulated == 8);
        CHECK(few.even);
        CHECK(few.us == Approx(all.us).epsilon(error));
    }
}

TEST_CASE("arguments that do not fit together are an error", "[simulator]") {
    const PairsFabric fabric(2, 1000, 1);
    const auto objection = [&](const SimulatedCall& call) {
        const auto found = simulate(fabric, call);
        REQUIRE_FALSE(found);
        CHECK(found.status().code() == weftInvalidArgument);
        return std::string(found.status().sentence());
    };
    CHECK(objection(call_of("ring", 3, 100)) == "the schedules are of 3 ranks, the fabric of 2");
    SimulatedCall deaf = one_way(64, 64, 1);
    deaf.schedule = [inner = deaf.schedule](int rank) {
        Schedule schedule = inner(rank);
        if (rank == 1) schedule.blocks.clear();
        return schedule;
    };
    CHECK(objection(deaf) == "channel 0: rank 0 and rank 1: one end of the connection is missing");
    SimulatedCall silent = one_way(64, 64, 1);
    silent.schedule = [inner = silent.schedule](int rank) {
        Schedule schedule = inner(rank);
        if (rank == 1) schedule.blocks[0].instructions.push_back(schedule.blocks[0].instructions[0]);
        return schedule;
    };
    CHECK(objection(silent) ==
          "1 blocks wait for ever with 1 slots a connection: rank 1, block 0, step 1, tile 0 for a message of rank 0");
}

}  // namespace weft::internal
