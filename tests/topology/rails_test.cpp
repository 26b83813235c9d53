// By which NIC ranks leave their hosts: the nearest, of equal ones in turns, of unequal hosts each its own.
#include "topology/search/rails.hpp"
#include "topology/model/connect.hpp"

#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"
#include "topology/search/rank_orders.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

using Order = std::vector<int32_t>;

// A port on each of these cpus, of these Gb/s.
Graph machine(int cpus, const std::vector<std::pair<int, int>>& ports) {
    Graph graph;
    REQUIRE(graph.host("").ok());
    std::vector<int> nodes;
    for (int number = 0; number < cpus; ++number) {
        Node cpu;
        cpu.kind = NodeKind::cpu;
        cpu.cpu.numaid = number;
        nodes.push_back(*graph.add(std::move(cpu)));
    }
    int dev = 0;
    for (const auto& [cpu, gbps] : ports) {
        Node nic, port;
        nic.kind = NodeKind::nic;
        nic.parent = nodes[size_t(cpu)];
        nic.busid = "0000:0" + std::to_string(dev) + ":00.0";
        port.parent = *graph.add(std::move(nic));
        port.kind = NodeKind::port;
        port.port.dev = dev++;
        port.port.speed = gbps * 1000;
        REQUIRE(graph.add(std::move(port)).ok());
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    return graph;
}

Job job_on(const std::vector<const Graph*>& graphs, const std::vector<std::vector<int>>& seats) {
    Job job{graphs, {}, {}};
    for (size_t host = 0; host < seats.size(); ++host) {
        job.graph_of.push_back(int(host % graphs.size()));
        for (const int cpu : seats[host])
            job.locations.push_back(
                {int(host), job.graphs[host % graphs.size()]->find_cpu(0, cpu), unknown, int(job.locations.size())});
    }
    return job;
}

}  // namespace

TEST_CASE("each GPU leaves by the NIC below its switch", "[topology][rails]") {
    for (const char* name : {"dgx_h100", "dgx_a100"}) {
        const Graph graph = read_machine(name).graph;
        const auto job = job_of_all(graph, 2);
        REQUIRE(job.ok());
        const Order rails = rails_of(*job);
        REQUIRE(rails.size() == 16);
        for (size_t rank = 0; rank < 16; ++rank) CHECK(rails[rank] == rails[rank % 8]);
        if (std::string(name) == "dgx_h100")
            CHECK(Order(rails.begin(), rails.begin() + 8) == Order{0, 1, 2, 3, 4, 5, 6, 7});
    }
}

TEST_CASE("ranks on processors leave by a NIC of their NUMA domain, of equal ones in turns", "[topology][rails]") {
    const Graph two = machine(2, {{0, 100}, {1, 100}});
    CHECK(rails_of(job_on({&two}, {{0, 0, 1, 1}, {1, 0}})) == Order{0, 0, 1, 1, 1, 0});
    const Graph one = machine(1, {{0, 100}, {0, 100}, {0, 10}});
    // The slow one belongs to no rank.
    CHECK(rails_of(job_on({&one}, {{0, 0, 0, 0}, {0}})) == Order{0, 1, 0, 1, 0});
    const Graph far = machine(3, {{2, 25}});
    CHECK(rails_of(job_on({&far}, {{0, 1, 2}})) == Order{0, 0, 0});
    const Graph none = machine(1, {});
    CHECK(rails_of(job_on({&two, &none}, {{1}, {0}, {0}})) == Order{1, unknown, 0});
}

TEST_CASE("rings of processors pass unequal machines so that they stay on a rail", "[topology][rails]") {
    const Graph fast = machine(2, {{0, 100}, {1, 100}}), slow = machine(2, {{0, 25}, {1, 25}});
    const Job job = job_on({&fast, &slow}, {{0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}});
    const auto found = search(job);
    REQUIRE(found.ok());
    Layout plain{16, 0, hosts_in_blocks(16, 4)}, layout = plain;
    take_rings(*found, plain);
    layout.rails = plain.rails = rails_of(job);
    take_rings(*found, layout);
    const HostCrossings before = host_crossings_of(plain, 0), after = host_crossings_of(layout, 0);
    CHECK(before.all == 4);
    CHECK(after.all == 4);
    CHECK(before.on_rail < 4);  // else the test shows nothing
    CHECK(after.on_rail == 4);
    auto all = layout.ring_orders.at(0);
    std::sort(all.begin(), all.end());
    for (int32_t rank = 0; rank < 16; ++rank) CHECK(all[size_t(rank)] == rank);
    // Of equal ones the search turns every second one round.
    const Job alike = job_on({&fast}, {{0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}, {0, 0, 1, 1}});
    const auto turned = search(alike);
    REQUIRE(turned.ok());
    CHECK(turned->alternates);
    take_rings(*turned, layout);
    CHECK(host_crossings_of(layout, 0).on_rail == 4);
}

TEST_CASE("hosts of an NVLink domain stand side by side in rings", "[topology][rails]") {
    const Graph graph = read_machine("dgx_h100").graph;
    const auto job = job_of_all(graph, 5);
    const auto found = search(*job);
    REQUIRE(found.ok());
    Layout layout{40, 0, hosts_in_blocks(40, 5)};
    layout.domains = {0, -1, 1, 0, 1};
    take_rings(*found, layout);
    REQUIRE(!layout.ring_orders.empty());
    for (size_t channel = 0; channel < layout.ring_orders.size(); ++channel) {
        const HostCrossings crossings = host_crossings_of(layout, int(channel));
        CHECK(crossings.all == 5);
        CHECK(crossings.in_domain == 2);
    }
    // Without domains they stand in their order, and none is beside its own.
    Layout plain{40, 0, hosts_in_blocks(40, 5)};
    take_rings(*found, plain);
    plain.domains = layout.domains;
    CHECK(host_crossings_of(plain, 0).in_domain == 0);
}
