// Paths on machines that people have: classes as in nvidia-smi, bandwidths as in NCCL.
#include "tests/topology/machines.hpp"
#include "tests/catch.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

struct Expected {
    const char *source, *target;
    PathClass path_class;
    double bandwidth_gbs;
    int hops;
};

void check(const Graph& graph, std::initializer_list<Expected> rows, PathOptions options = {}) {
    const Paths paths(graph, options);
    for (const Expected& row : rows) {
        INFO(row.source << " to " << row.target);
        const int source = node_named(graph, row.source), target = node_named(graph, row.target);
        for (const auto& [from, to] : {std::pair(source, target), std::pair(target, source)}) {
            const Path path = paths.between(from, to);
            CHECK(std::string(name_of(path.path_class)) == name_of(row.path_class));
            CHECK(path.bandwidth_gbs == Approx(row.bandwidth_gbs));
            CHECK(path.hops == row.hops);
            CHECK(!path.assumed);
            const auto route = paths.route(from, to);
            REQUIRE(route.size() == size_t(row.hops) + 1);
            CHECK(route.front() == from);
            CHECK(route.back() == to);
        }
    }
}

int count(const Graph& graph, NodeKind kind) {
    int count = 0;
    for (const Node& node : graph.nodes()) count += node.kind == kind;
    return count;
}

}  // namespace

TEST_CASE("DGX-1: a hybrid cube mesh, NVB where there is no NVLink", "[topology]") {
    const auto machine = read_machine("dgx1_v100");
    CHECK(machine.notes.empty());
    CHECK(count(machine.graph, NodeKind::gpu) == 8);
    // By QPI of Broadwell.
    check(machine.graph, {{"gpu0", "gpu3", PathClass::nvl, 40, 1},
                          {"gpu0", "gpu1", PathClass::nvl, 20, 1},
                          {"gpu0", "gpu7", PathClass::nvb, 40, 2},
                          {"gpu2", "gpu4", PathClass::nvb, 20, 2},
                          {"gpu0", "mlx5_0", PathClass::pix, 12, 3},
                          {"gpu0", "mlx5_1", PathClass::phb, 12, 5},
                          {"gpu0", "mlx5_3", PathClass::sys, 6, 6},
                          {"gpu5", "cpu1", PathClass::phb, 12, 2},
                          {"cpu0", "cpu1", PathClass::sys, 6, 1}});
    const Path through =
        Paths(machine.graph).between(node_named(machine.graph, "gpu0"), node_named(machine.graph, "gpu7"));
    CHECK(through.through == node_named(machine.graph, "gpu4"));
    check(machine.graph, {{"gpu0", "gpu7", PathClass::sys, 6, 5}}, {.nvb = false});
}

TEST_CASE("DGX A100: links to six NVSwitches carry their sum", "[topology]") {
    const auto machine = read_machine("dgx_a100");
    CHECK(machine.notes.empty());
    CHECK(count(machine.graph, NodeKind::nvswitch) == 1);
    check(machine.graph, {{"gpu0", "gpu7", PathClass::nvl, 240, 2},
                          {"gpu0", "gpu1", PathClass::nvl, 240, 2},
                          {"gpu0", "mlx5_0", PathClass::pix, 24, 3},
                          {"gpu0", "mlx5_2", PathClass::sys, 16, 6},
                          {"gpu0", "cpu3", PathClass::phb, 24, 2},
                          {"gpu0", "cpu0", PathClass::sys, 16, 3}});
}

TEST_CASE("DGX H100: NICs of other GPUs are reached by NVLink where PXN is asked for", "[topology]") {
    const auto machine = read_machine("dgx_h100");
    CHECK(machine.notes.empty());
    check(machine.graph, {{"gpu0", "gpu5", PathClass::nvl, 370.8, 2},
                          {"gpu0", "mlx5_0", PathClass::pix, 48, 3},
                          {"gpu0", "mlx5_1", PathClass::phb, 48, 5},
                          {"gpu0", "mlx5_7", PathClass::sys, 22, 6},
                          {"cpu0", "cpu1", PathClass::sys, 22, 1}});
    check(machine.graph,
          {{"gpu0", "mlx5_0", PathClass::pix, 48, 3},
           {"gpu0", "mlx5_1", PathClass::pxn, 48, 5},
           {"gpu0", "mlx5_7", PathClass::pxn, 48, 5},
           {"cpu0", "mlx5_7", PathClass::sys, 22, 4}},
          {.pxn = true});
    const Path through = Paths(machine.graph, {.pxn = true})
                             .between(node_named(machine.graph, "gpu0"), node_named(machine.graph, "mlx5_7"));
    CHECK(through.through == node_named(machine.graph, "gpu7"));
}

TEST_CASE("PCI GPUs on two sockets: a switch, host bridges, UPI, and the narrower of two", "[topology]") {
    const auto machine = read_machine("pcie_4_gpus");
    CHECK(machine.notes.empty());
    check(machine.graph, {{"gpu0", "gpu1", PathClass::pix, 12, 2},
                          {"gpu2", "gpu3", PathClass::phb, 6, 2},
                          {"gpu1", "gpu2", PathClass::sys, 10, 4},
                          {"gpu0", "gpu3", PathClass::sys, 6, 4},
                          {"gpu0", "mlx5_0", PathClass::phb, 12, 4},
                          {"gpu2", "mlx5_0", PathClass::sys, 10, 4}});
}

TEST_CASE("Two A100 with a bridge: twelve NVLinks", "[topology]") {
    const auto machine = read_machine("a100_bridge");
    check(machine.graph, {{"gpu0", "gpu1", PathClass::nvl, 240, 1}, {"gpu1", "mlx5_0", PathClass::phb, 24, 3}});
}

TEST_CASE("GB200 NVL72: one NVLink domain over hosts, the network for all else", "[topology]") {
    const auto machine = read_machine("gb200_nvl72_slice");
    const Graph& graph = machine.graph;
    CHECK(machine.notes.empty());
    CHECK(graph.hosts().size() == 2);
    CHECK(count(graph, NodeKind::nvswitch) == 1);
    check(graph, {{"gpu0", "gpu3", PathClass::nvl, 721.8, 2},
                  {"gpu0", "cpu0", PathClass::c2c, 223.56, 1},
                  {"gpu0", "mlx5_0", PathClass::p2c, 48, 3},
                  {"gpu0", "cpu1", PathClass::sys, 6, 2}});
    const Paths paths(graph);
    const Path switched = paths.between(node_named(graph, "gpu0", 0), node_named(graph, "gpu3", 1));
    CHECK(switched.path_class == PathClass::nvl);
    CHECK(switched.bandwidth_gbs == Approx(721.8));
    const int cpu = node_named(graph, "cpu0", 0), remote = node_named(graph, "gpu2", 1);
    const Path network = paths.between(cpu, remote);
    CHECK(network.path_class == PathClass::net);
    CHECK(network.bandwidth_gbs == 48);
    CHECK(network.hops == 6);
    CHECK(paths.route(cpu, remote).size() == 7);
    CHECK(paths.between(node_named(graph, "mlx5_0", 0), node_named(graph, "mlx5_3", 1)).bandwidth_gbs == 50);
}

TEST_CASE("Grace Hopper: the GPU's way to its cpu is C2C, not PCI", "[topology]") {
    const auto machine = read_machine("grace_hopper");
    check(machine.graph, {{"gpu0", "cpu0", PathClass::c2c, 447.12, 1},
                          {"gpu0", "mlx5_0", PathClass::p2c, 48, 3},
                          {"cpu0", "mlx5_0", PathClass::phb, 48, 2}});
}

TEST_CASE("a cloud's partial file: devices have their classes, empty values are assumed and marked", "[topology]") {
    const auto machine = read_machine("cloud_vm_partial");
    const Graph& graph = machine.graph;
    CHECK(machine.notes.empty());
    CHECK(count(graph, NodeKind::gpu) == 8);
    CHECK(count(graph, NodeKind::nic) == 8);
    const Paths paths(graph);
    const int gpu = node_named(graph, "0001:00:00.0");
    CHECK(graph.node(gpu).gpu.sm == unknown);
    const Path near = paths.between(gpu, node_named(graph, "0101:00:00.0"));
    CHECK(near.path_class == PathClass::pix);
    CHECK(near.bandwidth_gbs == 12);
    CHECK(near.assumed);
    CHECK(paths.between(gpu, node_named(graph, "0103:00:00.0")).path_class == PathClass::sys);
    CHECK(!paths.between(node_named(graph, "cpu0"), node_named(graph, "ffff:ff:01.0")).assumed);
}

TEST_CASE("A host without GPUs: a NIC of PCI, one of software, two sockets", "[topology]") {
    const auto machine = read_machine("cpu_two_sockets");
    CHECK(machine.notes.empty());
    check(machine.graph, {{"cpu0", "cpu1", PathClass::sys, 22, 1},
                          {"cpu0", "eth0", PathClass::phb, 3.125, 2},
                          {"cpu1", "eth0", PathClass::sys, 3.125, 3},
                          {"cpu0", "veth0", PathClass::phb, 1.25, 2}});
}

TEST_CASE("A container that sees half of the cores: the others are known, and not allowed", "[topology]") {
    const auto machine = read_machine("container_half");
    CHECK(machine.notes.empty());
    CHECK(machine.graph.node(node_named(machine.graph, "cpu0")).cpu.allowed.empty());
    CHECK(machine.graph.node(node_named(machine.graph, "cpu1")).cpu.allowed == "0");
    CHECK(machine.graph.node(node_named(machine.graph, "cpu1")).cpu.caches ==
          std::vector<Cache>{{2, 2 << 20, 2, 4}, {3, 32 << 20, 8, 1}});
    check(machine.graph, {{"cpu0", "eth0", PathClass::phb, 1.25, 2}, {"cpu1", "eth0", PathClass::sys, 1.25, 3}});
}
