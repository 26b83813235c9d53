// Machines that hwloc's files and strings describe, where the library is; and the sentences where it is not.
#include <fstream>

#include "src/drivers/hwloc/hwloc.hpp"
#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"
#include "tests/topology/system_tree.hpp"
#include "topology/detect/hardware.hpp"
#include "topology/model/paths.hpp"
#include "topology/summary.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

const std::string folder = std::string(WEFT_TOPOLOGY) + "/hwloc/";

bool has_hwloc() { return hwloc::this_machine("").ok(); }

}  // namespace

TEST_CASE("a machine without the hwloc library says so", "[topology][hwloc]") {
    CHECK(!discover_synthetic("none", "core:2").ok());
    CHECK(!discover_synthetic("/nowhere/libhwloc.so", "core:2").ok());
    CHECK(!discover_xml("none", file_text(folder + "two_sockets.xml")).ok());
}

TEST_CASE("a string of hwloc's is a machine", "[topology][hwloc]") {
    if (!has_hwloc()) return;
    struct Row {
        const char* text;
        const char* summary;
        size_t cpus;
    };
    const Row rows[] = {{"core:1 pu:1", "1 NUMA domain, 1 core", 1},
                        {"package:2 [numa] l3:2(size=33554432) l2:4(size=1048576) core:1 pu:2",
                         "2 packages, 2 NUMA domains, 16 cores, 8 x L2 1 MiB of 2 threads, 2 x L3 32 MiB of 8 threads "
                         "in the first domain",
                         2},
                        {"package:2 numa:4 core:2 pu:1", "2 packages, 8 NUMA domains, 16 cores", 8},
                        {"package:16 numa:8 core:32 pu:2", "16 packages, 128 NUMA domains, 4096 cores", 128}};
    for (const Row& row : rows) {
        INFO(row.text);
        const auto found = discover_synthetic("", row.text);
        INFO(found.status().sentence());
        REQUIRE(found.ok());
        check_reads_back(found->graph);
        CHECK(summarize(found->graph)[0] == row.summary);
        CHECK(found->graph.of_kind(NodeKind::cpu).size() == row.cpus);
    }
    for (const char* text : {"", "nonsense", "package:0", "package:-1", "package:2000000 core:50000", "999999999",
                             "core:99999999999999999999", "core:0x7fffffff", "core:2\t0x7ffffff", "numa:200 core:1"}) {
        INFO(text);
        const auto found = discover_synthetic("", text);
        CHECK(!found.ok());
        CHECK(found.status().code() == weftInvalidArgument);
    }
}

TEST_CASE("a file of hwloc's is a machine with switches, a GPU and NICs", "[topology][hwloc]") {
    if (!has_hwloc()) return;
    const auto found = discover_xml("", file_text(folder + "two_sockets.xml"));
    INFO(found.status().sentence());
    REQUIRE(found.ok());
    CHECK(found->notes.empty());
    const Graph& graph = found->graph;
    check_reads_back(graph);
    const Paths paths(graph);
    const int gpu = node_named(graph, "gpu0");
    CHECK(paths.between(gpu, node_named(graph, "mlx5_0")).path_class == PathClass::pix);
    CHECK(paths.between(gpu, node_named(graph, "cpu0")).bandwidth_gbs == 24);
    CHECK(paths.between(gpu, node_named(graph, "eth0")).path_class == PathClass::sys);
    CHECK(graph.node(node_named(graph, "mlx5_0")).port.interface == "ib0");
    CHECK(graph.node(node_named(graph, "mlx5_0")).port.number == 1);
    CHECK(graph.node(node_named(graph, "cpu1")).cpu.vendor == "AuthenticAMD");
    CHECK(graph.node(node_named(graph, "0000:82:00.0")).pci.link_width == 8);
    CHECK(graph.of_kind(NodeKind::gpu).size() == 1);  // the console's display is none
}

TEST_CASE("files that are none of hwloc's, or broken, are refused with a sentence", "[topology][hwloc]") {
    CHECK(files_in("hwloc/broken").size() >= 7);
    for (const auto& file : files_in("hwloc/broken")) {
        INFO(file);
        CHECK(!discover_xml("", file_text(file)).ok());
    }
    CHECK(!discover_xml("", "").ok());
    if (!has_hwloc()) return;
    // Cut anywhere, it is a sentence or a machine.
    const std::string text = file_text(folder + "two_sockets.xml");
    for (size_t length = 0; length < text.size(); length += 97) CHECK(!discover_xml("", text.substr(0, length)).ok());
}

TEST_CASE("objects that contradict each other make a graph, or none, but end", "[topology][hwloc]") {
    using hwloc::ObjectKind;
    const auto object = [](ObjectKind kind, int parent, const char* cpus, const char* busid,
                           unsigned device_class = 0) {
        hwloc::Object made;
        made.kind = kind;
        made.parent = parent;
        made.cpus = cpus;
        made.bus_id = busid;
        made.device_class = device_class;
        made.number = 0;
        return made;
    };
    // A device twice, each above the other, and two NUMA domains of one number.
    hwloc::HwlocTopology machine;
    machine.objects = {object(ObjectKind::machine, -1, "0-3", ""),
                       object(ObjectKind::numa, 0, "0-1", ""),
                       object(ObjectKind::bridge, 0, "", "0000:01:00.0", 0x0604),
                       object(ObjectKind::bridge, 2, "", "0000:02:00.0", 0x0604),
                       object(ObjectKind::bridge, 3, "", "0000:01:00.0", 0x0604),
                       object(ObjectKind::bridge, 4, "", "0000:02:00.0", 0x0604),
                       object(ObjectKind::pci, 5, "", "0000:03:00.0", 0x0302),
                       object(ObjectKind::pci, 6, "", "0000:03:00.0", 0x0302),
                       object(ObjectKind::pci, 0, "", "no bus id", 0x0302)};
    Hardware hardware;
    add_hwloc(machine, hardware);
    const auto graph = make_graph(hardware, {});
    INFO(graph.status().sentence());
    REQUIRE(graph.ok());
    CHECK(graph->of_kind(NodeKind::gpu).size() == 1);
    machine.objects.push_back(object(ObjectKind::numa, 0, "2-3", ""));
    Hardware twice;
    add_hwloc(machine, twice);
    CHECK(!make_graph(twice, {}).ok());
}
