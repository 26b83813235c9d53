// Which network port each rank of a host uses: the nearest, in turns among equal ones, without those that cannot be used.
#include "topology/search/nics.hpp"

#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"
#include "topology/gpu_nics.hpp"
#include "topology/model/connect.hpp"
#include "topology/search/job.hpp"
#include "topology/search/rails.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

std::vector<NicPort> ports_of(const Graph& graph) {
    std::vector<NicPort> ports;
    for (const int node : graph.of_kind(NodeKind::port)) ports.push_back({.device = graph.node(node).port.name});
    return ports;
}

std::vector<RankNodes> ranks_of(const Job& job) {
    std::vector<RankNodes> ranks;
    for (const RankLocation& location : job.locations) ranks.push_back({location.node});
    return ranks;
}

// "mlx5_0 mlx5_1 -": the device of each rank.
std::string chosen(const std::vector<NicChoice>& choices, const std::vector<NicPort>& ports) {
    std::string text;
    for (const NicChoice& choice : choices)
        text += (text.empty() ? "" : " ") + (choice.ports.empty() ? "-" : ports[size_t(choice.ports[0])].device);
    return text;
}

// Two cpus with two ports of 100 Gb/s each.
Graph two_sockets() {
    Graph graph;
    REQUIRE(graph.host("").ok());
    std::vector<int> cpus;
    for (int number = 0; number < 2; ++number) {
        Node cpu;
        cpu.kind = NodeKind::cpu;
        cpu.cpu.numaid = number;
        cpus.push_back(*graph.add(std::move(cpu)));
    }
    for (int dev = 0; dev < 4; ++dev) {
        Node nic, port;
        nic.kind = NodeKind::nic;
        nic.parent = cpus[size_t(dev / 2)];
        nic.busid = "0000:0" + std::to_string(dev) + ":00.0";
        port.parent = *graph.add(std::move(nic));
        port.kind = NodeKind::port;
        port.port.dev = dev;
        port.port.name = "mlx5_" + std::to_string(dev);
        port.port.speed = 100'000;
        REQUIRE(graph.add(std::move(port)).ok());
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    return graph;
}

}  // namespace

TEST_CASE("each GPU takes the port below its switch, as its rail has it", "[topology][nics]") {
    for (const char* name : {"dgx_h100", "dgx_a100"}) {
        INFO(name);
        const Graph graph = read_machine(name).graph;
        const std::vector<NicPort> ports = ports_of(graph);
        const auto job = job_of_all(graph, 1);
        REQUIRE(job);
        const auto choices = choose_nics(graph, ports, ranks_of(*job));
        const std::vector<int32_t> rails = rails_of(*job);
        REQUIRE(choices.size() == 8);
        for (size_t rank = 0; rank < choices.size(); ++rank) {
            REQUIRE(!choices[rank].ports.empty());
            const int port = choices[rank].ports[0];
            CHECK(graph.node(graph.of_kind(NodeKind::port)[size_t(port)]).port.dev == rails[rank]);
            CHECK(choices[rank].path_class() <= PathClass::pxb);
            CHECK(choices[rank].ports.size() == ports.size());
        }
    }
}

TEST_CASE("ranks that are equally near to several ports take them in turn", "[topology][nics]") {
    const Graph graph = two_sockets();
    const std::vector<NicPort> ports = ports_of(graph);
    const int left = graph.find_cpu(0, 0), right = graph.find_cpu(0, 1);
    // In blocks, and in turns of the sockets.
    CHECK(chosen(choose_nics(graph, ports, std::vector<RankNodes>{{left}, {left}, {right}, {right}}), ports) ==
          "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
    CHECK(chosen(choose_nics(graph, ports, std::vector<RankNodes>{{left}, {right}, {left}, {right}}), ports) ==
          "mlx5_0 mlx5_2 mlx5_1 mlx5_3");
    // Ranks that are bound to no cores.
    const std::vector<RankNodes> anywhere(5, RankNodes{left, right});
    const auto choices = choose_nics(graph, ports, anywhere);
    CHECK(chosen(choices, ports) == "mlx5_0 mlx5_1 mlx5_2 mlx5_3 mlx5_0");
    CHECK(reason_of(choices[0]) == "one of 4 equally near, of 4 (PHB, 12 GB/s)");
    // The second choice is the other port of the socket.
    CHECK(choose_nics(graph, ports, std::vector<RankNodes>{{right}})[0].ports == std::vector{2, 3, 0, 1});
}

TEST_CASE("ports that cannot be used are no choice, however near", "[topology][nics]") {
    const Graph graph = two_sockets();
    std::vector<NicPort> ports = ports_of(graph);
    const std::vector<RankNodes> ranks{{graph.find_cpu(0, 0)}, {graph.find_cpu(0, 0)}};
    ports[0].usable = false;
    auto choices = choose_nics(graph, ports, ranks);
    CHECK(chosen(choices, ports) == "mlx5_1 mlx5_1");
    CHECK(reason_of(choices[0]).find("the nearest of 3 (PHB") == 0);
    ports[1].usable = ports[2].usable = false;
    choices = choose_nics(graph, ports, ranks);
    CHECK(chosen(choices, ports) == "mlx5_3 mlx5_3");
    CHECK(reason_of(choices[0]).find("the only one (SYS") == 0);
    ports[3].usable = false;
    choices = choose_nics(graph, ports, ranks);
    CHECK(chosen(choices, ports) == "- -");
    CHECK(reason_of(choices[0]) == "no port can be used");
    CHECK(choose_nics(graph, {}, ranks)[1].ports.empty());
    CHECK(choose_nics(graph, ports, {}).empty());
}

TEST_CASE("a port that the graph does not have comes last, and serves a rank alone", "[topology][nics]") {
    const Graph graph = two_sockets();
    std::vector<NicPort> ports{{.device = "rxe0"}, {.device = "mlx5_3"}};
    const std::vector<RankNodes> rank{{graph.find_cpu(0, 0)}};
    CHECK(choose_nics(graph, ports, rank)[0].ports == std::vector{1, 0});
    ports.pop_back();
    const auto alone = choose_nics(graph, ports, rank);
    CHECK(alone[0].ports == std::vector{0});
    CHECK(reason_of(alone[0]) == "the only one (its place in the machine is unknown)");
    // A rank whose place is unknown.
    CHECK(choose_nics(graph, ports_of(graph), std::vector<RankNodes>{{}})[0].ports.size() == 4);
}

TEST_CASE("a second port of a device is a port of its own", "[topology][nics]") {
    Graph graph = two_sockets();
    const std::vector<int> nodes = graph.of_kind(NodeKind::port);
    graph.change(nodes[0]).port.number = 1;
    graph.change(nodes[2]).port.name = "mlx5_0";
    graph.change(nodes[2]).port.number = 2;
    const std::vector<NicPort> ports{{.device = "mlx5_0", .number = 1}, {.device = "mlx5_0", .number = 2}};
    CHECK(choose_nics(graph, ports, std::vector<RankNodes>{{graph.find_cpu(0, 0)}})[0].ports[0] == 0);
    CHECK(choose_nics(graph, ports, std::vector<RankNodes>{{graph.find_cpu(0, 1)}})[0].ports[0] == 1);
}

TEST_CASE("a rank finds its port by its own place, as if it knew the others'", "[topology][nics]") {
    for (const char* name : {"dgx_h100", "dgx_a100"}) {
        const Graph graph = read_machine(name).graph;
        const std::vector<NicPort> ports = ports_of(graph);
        const auto job = job_of_all(graph, 1);
        const auto choices = choose_nics(graph, ports, ranks_of(*job));
        for (size_t rank = 0; rank < choices.size(); ++rank)
            CHECK(order_of_ports(graph, ports, {.gpu = graph.node(job->locations[rank].node).busid}) ==
                  choices[rank].ports);
    }
    Graph graph = two_sockets();
    graph.change(graph.find_cpu(0, 0)).cpu.affinity = "f";
    graph.change(graph.find_cpu(0, 1)).cpu.affinity = "f0";
    const std::vector<NicPort> ports = ports_of(graph);
    const auto first = [&](const char* cores, int rank) {
        return order_of_ports(graph, ports, {.cores = CpuMask::from_list(cores), .rank = rank})[0];
    };
    // One rank a core: the ports of the own socket in turn, whatever the numbers of the ranks.
    CHECK(first("0", 0) == 0);
    CHECK(first("1", 2) == 1);
    CHECK(first("2", 4) == 0);
    CHECK(first("4", 1) == 2);
    CHECK(first("5", 3) == 3);
    // Two cores each.
    CHECK(first("4-5", 0) == 2);
    CHECK(first("6-7", 0) == 3);
    // Whole sockets, all cores, and cores that no node has.
    CHECK(first("4-7", 3) == 3);
    CHECK(first("0-7", 0) == 0);
    CHECK(first("0-7", 2) == 2);
    CHECK(first("64", 5) == 1);
    // A GPU that the graph does not have.
    CHECK(order_of_ports(graph, ports, {.gpu = "0000:99:00.0", .cores = CpuMask::from_list("4")})[0] == 2);
    CHECK(order_of_ports(Graph(), ports, {})[0] == 0);
}

TEST_CASE("the farthest card counts for what may access a GPU's memory", "[nics]") {
    const Graph graph = read_machine("dgx_h100").graph;
    const std::string gpu = graph.node(node_named(graph, "gpu0")).busid;
    const auto of = [&](std::vector<std::string> nics) { return nics_of_gpu(graph, gpu, nics); };
    CHECK(of({"mlx5_0"}).path_class == PathClass::pix);
    CHECK_FALSE(of({"mlx5_0"}).c2c);
    const Node& nic = graph.node(graph.node(node_named(graph, "mlx5_0")).parent);
    CHECK(of({nic.busid}).path_class == PathClass::pix);
    // On the other socket.
    std::string far;
    for (const int port : graph.of_kind(NodeKind::port))
        if (of({graph.node(port).port.name}).path_class == PathClass::sys) far = graph.node(port).port.name;
    REQUIRE_FALSE(far.empty());
    CHECK(of({"mlx5_0", far, "unknown"}).path_class == PathClass::sys);
    CHECK(of({"unknown"}).path_class == PathClass::none);
    CHECK(of({}).path_class == PathClass::none);
    CHECK(nics_of_gpu(graph, "0000:ff:00.0", std::vector<std::string>{"mlx5_0"}).path_class == PathClass::none);
    CHECK(nics_of_gpu(Graph(), gpu, std::vector<std::string>{"mlx5_0"}).path_class == PathClass::none);
}

TEST_CASE("C2C and then PCI is as near as a switch; beside C2C data and flags take two ways", "[nics]") {
    const Graph graph = read_machine("grace_hopper").graph;
    const int gpu = graph.of_kind(NodeKind::gpu)[0], port = graph.of_kind(NodeKind::port)[0];
    const GpuNics found =
        nics_of_gpu(graph, graph.node(gpu).busid, std::vector<std::string>{graph.node(port).port.name});
    CHECK(found.c2c);
    CHECK(found.path_class == PathClass::p2c);
    CHECK_FALSE(found.beside_c2c());
    CHECK((GpuNics{PathClass::pix, true}.beside_c2c()));
    CHECK(found.path_class <= farthest(verbs::GdrLevel::pxb));
    CHECK(found.path_class > farthest(verbs::GdrLevel::pix));
    CHECK(PathClass::pix > farthest(verbs::GdrLevel::loc));
}
