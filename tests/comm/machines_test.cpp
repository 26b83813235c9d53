// machines_test.cpp: ring orders that ranks derive from their hosts' machine descriptions. All ranks derive the same
// orders, also if their own machines differ.
#include "src/planning/machines.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>

#include "src/control/agreed_texts.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tests/topology/machines.hpp"
#include "topology/description.hpp"
#include "topology/fabric/simulated_hosts.hpp"
#include "topology/model/connect.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/search/arrangement.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

namespace {

using Order = std::vector<int32_t>;

struct Member {
    int host = 0, cpu = -1;
    const char* gpu = nullptr;  // its bus id
};

MachineText text_of(const topology::Graph& graph) {
    return {topology::describe(graph), topology::shared_domain(graph)};
}
MachineText text_of(const std::string& machine) { return text_of(read_machine(machine).graph); }

// A group as one of its hosts sees it when all have met. machines: of each host; an empty one is unknown.
std::shared_ptr<Segment> group_of(const std::vector<Member>& members, const std::vector<MachineText>& machines,
                                  int own_host = 0) {
    const bool spread = machines.size() > 1;
    auto group = Segment::create(int(members.size()), false);
    if (!group) FAIL(group.status().sentence());
    Segment& made = **group;
    REQUIRE(made.back_rows(0, int(members.size())));
    for (size_t rank = 0; rank < members.size(); ++rank) {
        RankInfo& info = made.rank_info(int(rank));
        info.host = members[rank].host;
        info.cpu = members[rank].cpu;
        if (!members[rank].gpu) continue;
        DeviceFacts& device = made.row(int(rank)).gpu.facts;
        device.use = DeviceFacts::usable;
        std::string(members[rank].gpu).copy(device.bus_id, sizeof device.bus_id - 1);
    }
    AgreedTexts texts;
    for (const MachineText& machine : machines) texts.add_machine(machine);
    REQUIRE(texts.leave(made));
    made.header().facts.hosts = int32_t(machines.size());
    made.header().own_host = own_host;
    if (spread) made.header().spread = 1;
    REQUIRE(made.settle());
    return *group;
}

Machines machines_of(const std::shared_ptr<Segment>& group) {
    auto machines = Machines::of(*group);
    if (!machines) FAIL(machines.status().sentence());
    return **machines;
}

Order first_ring(const Layout& layout) {
    // The neighbours of each rank: every rank finds the same ring.
    Order order{0};
    while (true) {
        Layout seen = layout;
        seen.rank = order.back();
        const Ring ring = seen.ring(0);
        seen.rank = ring.next;
        REQUIRE(seen.ring(0).previous == order.back());
        if (ring.next == 0) return order;
        order.push_back(ring.next);
        REQUIRE(order.size() <= size_t(layout.ranks));
    }
}

}  // namespace

TEST_CASE("ranks of a host stand in rings by the NUMA domains of their threads", "[machines]") {
    // Threads 0-15 and 32-47 are of the first domain. Ranks bound in turns, as mpirun --map-by socket does it.
    const auto group = group_of({{0, 0}, {0, 16}, {0, 1}, {0, 17}, {0, 34}, {0, 48}}, {text_of("cpu_two_sockets")});
    const Machines machines = machines_of(group);
    CHECK(machines.apart() == std::optional(true));
    const Order order = first_ring(machines.layout(3));
    CHECK(order == Order{0, 2, 4, 1, 3, 5});
    REQUIRE(machines.notes().size() == 1);
    CHECK_THAT(machines.notes()[0], Catch::StartsWith("processors: 1 kind of machines; "));
    CHECK_THAT(machines.notes()[0], Catch::Contains("0 2 4 1 3 5"));
    CHECK(machines.layout(3).rank == 3);
    CHECK(machines.rings() != 0);
    // Their GPUs are none.
    CHECK(machines.device_layout(1).ring_orders.empty());
    CHECK(machines.device_gbs() == 0);
}

TEST_CASE("ranks of one domain stand by their threads, unbound ones by rank", "[machines]") {
    const Machines bound = machines_of(group_of({{0, 3}, {0, 1}, {0, 2}, {0, 0}}, {text_of("cpu_two_sockets")}));
    CHECK(bound.apart() == std::optional(false));
    CHECK(first_ring(bound.layout(0)) == Order{0, 3, 1, 2});
    const Machines unbound = machines_of(group_of({{0, 0}, {0, 0}, {0, 0}, {0, 0}}, {text_of("cpu_two_sockets")}));
    CHECK(unbound.layout(0).ring_orders.empty());
    // A thread that no domain has, and an unknown one.
    const Machines strange = machines_of(group_of({{0, 900}, {0, -1}, {0, 5}}, {text_of("cpu_two_sockets")}));
    CHECK(first_ring(strange.layout(0)).size() == 3);
}

TEST_CASE("every host of several finds the same rings", "[machines]") {
    const std::vector<Member> members = {{0, 0}, {1, 16}, {0, 16}, {1, 0}, {0, 1}, {1, 1}, {0, 17}, {1, 17}};
    for (const bool alike : {true, false}) {
        const std::vector<MachineText> texts = {text_of("cpu_two_sockets"),
                                                text_of(alike ? "cpu_two_sockets" : "container_half")};
        const Machines here = machines_of(group_of(members, texts, 0)),
                       there = machines_of(group_of(members, texts, 1));
        CHECK(here.layout(2).ring_orders == there.layout(2).ring_orders);
        CHECK(here.rings() == there.rings());
        const Order order = first_ring(here.layout(0));
        // Each host's ranks side by side: its border is crossed once each way.
        int crossings = 0;
        for (size_t i = 0; i < order.size(); ++i)
            crossings += members[size_t(order[i])].host != members[size_t(order[(i + 1) % order.size()])].host;
        CHECK(crossings == 2);
        CHECK(order.size() == members.size());
    }
}

TEST_CASE("where a host is unknown rings pass hosts and ranks in their order", "[machines]") {
    const std::vector<Member> members = {{0, 0}, {1, 16}, {0, 16}, {1, 0}};
    for (const std::string& other : {std::string(), std::string("<system"), std::string("<system version=\"1\"/>")}) {
        const Machines machines = machines_of(group_of(members, {text_of("cpu_two_sockets"), {other}}));
        CHECK(machines.layout(0).ring_orders.empty());
        REQUIRE(machines.notes().size() == 1);
        CHECK_THAT(machines.notes()[0], Catch::Contains("the machines of 1 of 2 hosts are unknown"));
        CHECK(machines.rings() == 0);
        CHECK(first_ring(machines.layout(0)) == Order{0, 2, 1, 3});
    }
    const Machines alone = machines_of(group_of(members, {MachineText()}));
    CHECK(alone.layout(0).ring_orders.empty());
}

TEST_CASE("GPUs stand in rings along their links", "[machines]") {
    // A hybrid cube mesh: not every GPU has an NVLink to the next.
    const char* const gpus[] = {"0000:06:00.0", "0000:07:00.0", "0000:0a:00.0", "0000:0b:00.0",
                                "0000:85:00.0", "0000:86:00.0", "0000:89:00.0", "0000:8a:00.0"};
    const topology::Graph graph = read_machine("dgx1_v100").graph;
    const auto linked = [&](const char* one, const char* other) {
        const int a = graph.find(0, one), b = graph.find(0, other);
        return std::any_of(graph.links().begin(), graph.links().end(), [&](const topology::Link& link) {
            return link.kind == topology::LinkKind::nvlink &&
                   ((link.source == a && link.target == b) || (link.source == b && link.target == a));
        });
    };
    std::vector<Member> members;
    for (const char* gpu : gpus) members.push_back({0, 0, gpu});
    const Machines machines = machines_of(group_of(members, {text_of("dgx1_v100")}));
    const auto& orders = machines.device_layout(0).ring_orders;
    REQUIRE(orders.size() > 1);
    bool plain_is_linked = true;
    for (size_t i = 0; i < 8; ++i) plain_is_linked &= linked(gpus[i], gpus[(i + 1) % 8]);
    CHECK_FALSE(plain_is_linked);  // else the test shows nothing
    for (const Order& order : orders)
        for (size_t i = 0; i < order.size(); ++i) CHECK(linked(gpus[order[i]], gpus[order[(i + 1) % order.size()]]));
    CHECK(machines.device_gbs() > 20);
    // One whose GPU the machine does not have: no rank has a ring along links.
    members[5].gpu = "0000:ff:00.0";
    const Machines lacking = machines_of(group_of(members, {text_of("dgx1_v100")}));
    CHECK(lacking.device_layout(0).ring_orders.empty());
    CHECK_THAT(lacking.notes().back(), Catch::Contains("is none of its host's"));
}

TEST_CASE("hosts of one NVLink domain are known as such, and are alike with those of others", "[machines]") {
    const auto text = [](const char* domain) {
        topology::Graph graph = read_machine("dgx_h100").graph;
        for (const int gpu : graph.of_kind(topology::NodeKind::gpu)) graph.change(gpu).gpu.domain = domain;
        return text_of(graph);
    };
    const topology::Graph graph = read_machine("dgx_h100").graph;
    std::vector<std::string> ids;
    for (const int gpu : graph.of_kind(topology::NodeKind::gpu)) ids.push_back(graph.node(gpu).busid);
    std::vector<Member> members;
    for (int host = 0; host < 5; ++host)
        for (const std::string& id : ids) members.push_back({host, 0, id.c_str()});
    const Machines machines = machines_of(
        group_of(members, {text("rack-0"), text("rack-1"), text("rack-0"), text("rack-1"), text("rack-2")}, 3));
    const Layout layout = machines.device_layout(7);
    CHECK(layout.domains == std::vector<int32_t>{0, 1, 0, 1, -1});
    CHECK(machines.layout(7).domains.empty());
    CHECK_THAT(machines.notes().back(),
               Catch::Contains("2 NVLink domains of several hosts, by host 0 1 0 1 -1; 2 of those ways lie in one"));
    CHECK_THAT(machines.notes()[0] + machines.notes()[2], Catch::Contains("GPUs: 1 kind of machines; "));
    for (int rank = 0; rank < 40; ++rank) CHECK(layout.rails[size_t(rank)] == rank % 8);
    std::vector<int> hosts;
    for (const int32_t rank : layout.ring_orders.at(0))
        if (hosts.empty() || hosts.back() != members[size_t(rank)].host) hosts.push_back(members[size_t(rank)].host);
    if (hosts.size() > 5) hosts.pop_back();  // rank 0 may stand in the middle of its host's
    CHECK(hosts == std::vector<int>{0, 2, 1, 3, 4});
    // More domains than there is room for texts, if each host had its own.
    const auto hundred = [&](int host) { return "rack-" + std::to_string(host / 2); };
    constexpr int hosts_many = sanitized ? 12 : 200;
    std::vector<Member> many;
    std::vector<MachineText> texts;
    for (int host = 0; host < hosts_many; ++host) {
        many.push_back({host, 0, ids[size_t(host % 8)].c_str()});
        texts.push_back(text(hundred(host).c_str()));
    }
    const Layout racks = machines_of(group_of(many, texts)).device_layout(0);
    REQUIRE(racks.domains.size() == hosts_many);
    for (int host = 0; host < hosts_many; ++host) CHECK(racks.domains[size_t(host)] == host / 2);
    // GPUs of different domains in a host, or a domain of one host: none.
    topology::Graph mixed = read_machine("dgx_h100").graph;
    mixed.change(mixed.of_kind(topology::NodeKind::gpu)[3]).gpu.domain = "another";
    members.resize(16);
    CHECK(machines_of(group_of(members, {text("rack-0"), text_of(mixed)})).device_layout(0).domains.empty());
}

TEST_CASE("communicators find the same machines as the simulation of a file", "[machines]") {
    struct Played {
        const char* machine;
        int copies, ranks, hosts, domains;
    };
    for (const auto& [machine, copies, ranks, hosts, domains] :
         {Played{"dgx_h100", 1, 0, 1, 0}, Played{"dgx_h100", 3, 18, 3, 0}, Played{"gb200_nvl72_slice", 1, 0, 2, 1},
          Played{"gb200_nvl72_slice", 2, 12, 4, 2}, Played{"cpu_two_sockets", 2, 12, 2, 0}}) {
        if (sanitized && (domains > 0 || hosts > 2)) continue;  // the search takes a minute there
        CAPTURE(machine, copies, ranks);
        const topology::Graph graph = read_machine(machine).graph;
        auto played = topology::simulate_hosts(graph, copies, ranks);
        if (!played) FAIL(played.status().sentence());
        Layout& layout = played->layout;
        CHECK(layout.host_count() == hosts);
        CHECK(played->graphs.size() == 1);  // trays of a rack are alike
        const auto seated = topology::job_of_ranks(graph, copies, ranks / copies);
        std::vector<std::string> ids;
        for (const topology::RankLocation& seat : seated->locations) ids.push_back(graph.node(seat.node).busid);
        std::vector<Member> members;
        const int ranks_a_host = layout.ranks / hosts;
        for (int rank = 0; rank < layout.ranks; ++rank) {
            // Cores are numbered through both sockets.
            const int core = rank % ranks_a_host * 32 / ranks_a_host;
            members.push_back({layout.host_of(rank), core, played->gpus ? ids[size_t(rank)].c_str() : nullptr});
        }
        std::vector<MachineText> texts;
        for (int host = 0; host < hosts; ++host)
            texts.push_back({topology::describe_host(graph, int(size_t(host) % graph.hosts().size())),
                             domains > 0 ? "rack " + std::to_string(host / 2) : ""});
        const Machines machines = machines_of(group_of(members, texts));
        const Layout there = played->gpus ? machines.device_layout(0) : machines.layout(0);
        const auto notes =
            topology::arrange(played->job, played->gpus ? "GPUs" : "processors", played->domains, layout).notes;
        CHECK(layout.ring_orders == there.ring_orders);
        CHECK(layout.rails == there.rails);
        CHECK(layout.domains == there.domains);
        CHECK(layout.rails.empty() == (hosts == 1));
        CHECK((layout.domains.empty() ? 0 : 1 + layout.domains.back()) == domains);
        REQUIRE(!notes.empty());
        for (const std::string& note : notes)
            CHECK(std::find(machines.notes().begin(), machines.notes().end(), note) != machines.notes().end());
    }
    const topology::Graph graph = read_machine("dgx_h100").graph;
    CHECK_EXPECTED(topology::simulate_hosts(graph, 2, 9), "[topology.placement] 9 ranks");
    CHECK_EXPECTED(topology::simulate_hosts(graph, 1, 9), "[topology.placement] 9 ranks");
    CHECK_FALSE(topology::simulate_hosts(graph, 0, 8).ok());
}

namespace {

// Random cpus, NICs and GPUs, some with unknown facts.
MachineText random_machine(std::mt19937& random) {
    const auto draw = [&](int most) { return int(random() % unsigned(most + 1)); };
    const char* const domains[] = {"", "rack-0", "rack-1"};
    const std::string domain = domains[draw(2)];
    topology::Graph graph;
    REQUIRE(graph.host("0x77").ok());
    int devices = 0, ports = 0;
    for (int cpus = 1 + draw(2), cpu = 0; cpu < cpus; ++cpu) {
        topology::Node node;
        node.kind = topology::NodeKind::cpu;
        node.cpu.numaid = cpu;
        if (draw(4) > 0) node.cpu.affinity = std::string(1, char('1' << cpu));
        const int above = *graph.add(std::move(node));
        for (int count = draw(3), i = 0; i < count; ++i) {
            topology::Node nic, port;
            nic.kind = topology::NodeKind::nic;
            nic.parent = above;
            nic.busid = fmt::format("0000:{:02x}:00.0", ++devices);
            port.parent = *graph.add(std::move(nic));
            port.kind = topology::NodeKind::port;
            port.port.name = fmt::format("mlx5_{}", ports);
            if (draw(3) > 0) port.port.dev = ports;
            if (draw(3) > 0) port.port.speed = 100'000 << draw(2);
            ++ports;
            REQUIRE(graph.add(std::move(port)).ok());
        }
        for (int i = 0; i < 2; ++i) {
            topology::Node gpu;
            gpu.kind = topology::NodeKind::gpu;
            gpu.parent = above;
            gpu.busid = fmt::format("0001:{:02x}:00.0", 2 * cpu + i);
            gpu.gpu.domain = domain;
            REQUIRE(graph.add(std::move(gpu)).ok());
        }
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    return draw(9) == 0 ? MachineText() : text_of(graph);
}

}  // namespace

TEST_CASE("ranks of random unequal hosts find the same layout, whichever host they are on", "[machines]") {
    std::mt19937 random(seed());
    INFO("seed " << seed());
    const char* const gpus[] = {"0001:00:00.0", "0001:01:00.0", "0001:02:00.0"};
    int known = 0;
    // So many, and more until one has had rails.
    for (int round = 0; round < (sanitized ? 5 : small() ? 20 : 200) || (known == 0 && round < 2000); ++round) {
        CAPTURE(round);
        const int hosts = 1 + int(random() % 5);
        std::vector<MachineText> texts;
        std::vector<Member> members;
        for (int host = 0; host < hosts; ++host) texts.push_back(random_machine(random));
        for (int rank = 0; rank < 3 * hosts; ++rank) {
            const int host = rank < hosts ? rank : int(random() % unsigned(hosts));
            members.push_back({host, int(random() % 4) - 1, gpus[random() % 3]});
        }
        std::vector<Machines> seen;
        for (const int own : {0, hosts - 1}) seen.push_back(machines_of(group_of(members, texts, own)));
        CHECK(seen[0].notes() == seen[1].notes());
        for (const bool devices : {false, true}) {
            std::vector<Layout> layouts;
            for (const Machines& each : seen) layouts.push_back(devices ? each.device_layout(1) : each.layout(1));
            const Layout &one = layouts[0], &other = layouts[1];
            CHECK(one.ring_orders == other.ring_orders);
            CHECK(one.rails == other.rails);
            CHECK(one.domains == other.domains);
            known += !one.rails.empty();
            CHECK((hosts > 1 || (one.rails.empty() && one.domains.empty())));
            if (!one.rails.empty()) {
                REQUIRE(one.rails.size() == members.size());
                for (const int32_t rail : one.rails) CHECK((rail >= -1 && rail < 9));
            }
            if (!one.domains.empty()) REQUIRE(one.domains.size() == size_t(hosts));
            for (const Order& order : one.ring_orders) {
                Order sorted = order;
                std::sort(sorted.begin(), sorted.end());
                for (size_t i = 0; i < sorted.size(); ++i) REQUIRE(sorted[i] == int32_t(i));
            }
        }
    }
    CHECK(known > 0);
}

TEST_CASE("more kinds of machines than are searched, two ranks, one domain: rings in order", "[machines]") {
    std::vector<Member> members;
    std::vector<MachineText> texts;
    for (int host = 0; host < 70; ++host) {
        for (const int cpu : {16, 0}) members.push_back({host, cpu});
        topology::Graph graph = read_machine("cpu_two_sockets").graph;
        graph.change(0).cpu.model = host;
        texts.push_back(text_of(graph));
    }
    const Machines many = machines_of(group_of(members, texts));
    CHECK(many.rings() == 0);
    REQUIRE(many.notes().size() == 1);
    CHECK_THAT(many.notes()[0], Catch::Contains("70 kinds of machines are more than 64"));
    const Machines two = machines_of(group_of({{0, 16}, {0, 0}}, {text_of("cpu_two_sockets")}));
    CHECK(two.rings() == 0);
    CHECK_FALSE(two.apart());
    // A ring that begins elsewhere is the same ring.
    const Machines turned = machines_of(group_of({{0, 2}, {0, 3}, {0, 0}, {0, 1}}, {text_of("cpu_two_sockets")}));
    CHECK(turned.rings() == 0);
}

TEST_CASE("equal machines have equal texts, on any host and in any process", "[machines]") {
    topology::Graph graph = read_machine("dgx_h100").graph, other = graph;
    other.name_host(0, "0x1234");
    for (size_t i = 0; i < other.nodes().size(); ++i) {
        topology::Node& node = other.change(int(i));
        node.gpu.rank = int(i);
        if (node.kind == topology::NodeKind::gpu) node.gpu.domain = "rack-7";
        if (node.kind == topology::NodeKind::port) node.port.guid = "0x" + std::to_string(i);
        if (node.kind == topology::NodeKind::cpu) node.cpu.allowed = "1";
    }
    CHECK(topology::describe(graph) == topology::describe(other));
    const auto again = topology::read_topology(topology::describe(graph));
    REQUIRE(again.ok());
    CHECK(again->graph.nodes().size() == graph.nodes().size());
    CHECK(again->graph.links().size() == graph.links().size());
    for (const int gpu : graph.of_kind(topology::NodeKind::gpu))
        CHECK(again->graph.find(0, graph.node(gpu).busid) == gpu);
    // A machine without the links between GPUs.
    const auto without = topology::read_topology(topology::describe(graph, false));
    REQUIRE(without.ok());
    CHECK(without->graph.of_kind(topology::NodeKind::gpu).empty());
    CHECK(without->graph.of_kind(topology::NodeKind::port).size() == graph.of_kind(topology::NodeKind::port).size());
    REQUIRE(other.host("0x99").ok());
    CHECK(topology::describe(other).empty());
}

#ifdef WEFT_COMMAND
TEST_CASE("random calls are right in rings by NUMA domains, on one host and on several", "[machines]") {
    const Folder folder;
    const std::string file = folder.path / "machine.xml";
    // The first processor that this test may use is a domain, the others are another one.
    const CpuSet allowed = allowed_cpus();
    topology::CpuMask first, others = topology::CpuMask::from_set(allowed);
    first.add(allowed.first());
    const std::string all = others.mask();
    others = topology::CpuMask();
    for (int thread = allowed.first() + 1; thread < 1024; ++thread)
        if (topology::CpuMask::from_mask(all).contains(thread)) others.add(thread);
    std::ofstream(file) << "<system version=\"1\"><cpu numaid=\"0\" affinity=\"" << first.mask()
                        << "\" arch=\"x86_64\"/><cpu numaid=\"1\" affinity=\"" << others.mask()
                        << "\" arch=\"x86_64\"/></system>";
    // Cores in turns, so that with two of them neighbours by rank are of different domains.
    const bool turns = allowed_cores() == 2;
    for (const int hosts : {0, 2})
        for (const char* algo : {"ring", ""}) {
            CAPTURE(hosts, algo);
            const ProcessResult outcome =
                run({WEFT_COMMAND, "run", "-n", "5", "--bind", "core", WEFT_WORKER, std::to_string(seed()),
                     small() ? "8" : "30", "60000", std::to_string(hosts)},
                    {"WEFT_TOPO_FILE=" + file, "WEFT_DEBUG=INFO", "WEFT_DEBUG_SUBSYS=INIT", "WEFT_WARN_MS=0",
                     "WEFT_TIMEOUT_MS=120000", std::string("WEFT_ALGO=") + algo});
            INFO("seed " << seed() << '\n' << outcome.error);
            CHECK(outcome.status == 0);
            CHECK_THAT(outcome.error, Catch::Contains("processors: 1 kind of machines"));
            if (turns && hosts == 0)
                CHECK_THAT(outcome.error, Catch::Contains("along the links, the first 0 2 4 1 3; "));
        }
}

TEST_CASE("a file of another machine's processors is warned of once a process", "[machines]") {
    const Folder folder;
    const std::string file = folder.path / "machine.xml";
    std::ofstream(file) << "<system version=\"1\"><cpu numaid=\"0\" arch=\"ppc64\" affinity=\"f\"/></system>";
    const ProcessResult outcome =
        run({WEFT_COMMAND, "run", "-n", "3", WEFT_WORKER, "1", "2", "100", "0"}, {"WEFT_TOPO_FILE=" + file});
    INFO(outcome.error);
    CHECK(outcome.status == 0);
    const std::string sentence =
        " WEFT WARN WEFT_TOPO_FILE, " + file + ": the file is of another machine: arch of cpu 0 is ppc64";
    // A rank that waits for long describes the machine too, as it would for a job of several hosts.
    std::vector<std::string> processes;
    for (size_t at = 0; (at = outcome.error.find(sentence, at)) != std::string::npos; ++at) {
        const size_t begin = outcome.error.rfind('\n', at) + 1;
        processes.push_back(outcome.error.substr(begin, at - begin));
    }
    CHECK(!processes.empty());
    std::sort(processes.begin(), processes.end());
    CHECK(std::adjacent_find(processes.begin(), processes.end()) == processes.end());
}

TEST_CASE("a machine's file that is none fails the ranks with its name and the reason", "[machines]") {
    const Folder folder;
    const std::string file = folder.path / "machine.xml";
    std::ofstream(file) << "<system version=\"1\"><cpu numaid=\"0\"><cpu numaid=\"0\"/></system>";
    for (const std::string& name : {file, std::string("/nonexistent")})
        for (const int hosts : {0, 2}) {
            CAPTURE(name, hosts);
            const ProcessResult outcome =
                run({WEFT_COMMAND, "run", "-n", "4", WEFT_WORKER, "1", "2", "100", std::to_string(hosts)},
                    {"WEFT_TOPO_FILE=" + name, "WEFT_INIT_TIMEOUT_MS=60000"});
            CHECK(outcome.status != 0);
            CHECK_THAT(outcome.error, Catch::Contains("WEFT_TOPO_FILE") && Catch::Contains(name));
        }
}

TEST_CASE("NCCL's file for GPUs stops no job on host memory, with any content and any owner", "[machines]") {
    const Folder folder;
    const std::string broken = folder.path / "broken.xml", cloud = WEFT_TOPOLOGY "/foreign/link_to_itself.xml";
    std::ofstream(broken) << "<system version=\"1\"><cpu numaid=\"0\"><cpu numaid=\"0\"/></system>";
    const auto job = [](const std::string& hosts, std::vector<std::string> variables, const std::string& before = ":") {
        variables.push_back("WEFT_INIT_TIMEOUT_MS=60000");
        return run({WEFT_COMMAND, "run", "-n", "3", "sh", "-c", before + "; exec \"$@\"", "sh", WEFT_WORKER, "1", "2",
                    "100", hosts},
                   variables);
    };
    for (const std::string& file : {broken, cloud, std::string("/nonexistent")})
        for (const char* hosts : {"0", "2"}) {
            CAPTURE(file, hosts);
            const ProcessResult outcome = job(hosts, {"NCCL_TOPO_FILE=" + file});
            CHECK(outcome.status == 0);
            CHECK_THAT(outcome.error, Catch::Contains("NCCL_TOPO_FILE, " + file));
        }
    // On some ranks only, each of which is the first of its host, or is not.
    for (const char* rank : {"0", "2"}) {
        CAPTURE(rank);
        const std::string some = std::string("test $WEFT_RANK != ") + rank + " || export NCCL_TOPO_FILE=" + broken;
        CHECK(job("2", {}, some).status == 0);
    }
    // A variable of Weft's hides NCCL's: an empty one means no file, any other is meant.
    const ProcessResult none = job("0", {"NCCL_TOPO_FILE=" + broken, "WEFT_TOPO_FILE="});
    CHECK(none.status == 0);
    CHECK(none.error.find("TOPO_FILE") == std::string::npos);
    CHECK(job("0", {"NCCL_TOPO_FILE=" + cloud, "WEFT_TOPO_FILE=/nonexistent"}).status != 0);
    CHECK(job("0", {"NCCL_SOCKET_FAMILY=AF_INET4", "NCCL_DEBUG=LOUD"}).status == 0);
    CHECK(job("2", {"NCCL_SOCKET_FAMILY=AF_INET4", "NCCL_TOPO_DUMP_FILE=/nonexistent/dump.xml"}).status == 0);
}
#endif
