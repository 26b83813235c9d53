// A file and a detected machine as one graph: the file wins, missing facts are added, contradictions are noted.
#include "topology/files/merge.hpp"

#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

Graph graph_of(const std::string& text) {
    auto read = read_topology("<system version=\"1\">" + text + "</system>");
    INFO(read.status().sentence());
    REQUIRE(read.ok());
    return std::move(read->graph);
}

Merged merged(const Graph& file, const Graph& detected) {
    auto result = merge(file, detected);
    INFO(result.status().sentence());
    REQUIRE(result.ok());
    return std::move(*result);
}

}  // namespace

TEST_CASE("a cloud's file knows the switches, the machine knows its devices", "[topology]") {
    const auto file = read_machine("cloud_vm_partial");
    // As such a machine looks from within: all below the first cpu, no bridges; and a NIC more.
    std::string devices;
    const char* domains[] = {"01", "02", "03", "04", "0b", "0c", "0d", "0e"};
    for (int i = 0; i < 8; ++i) {
        devices +=
            fmt::format(R"(<pci busid="00{0}:00:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
            <gpu dev="{1}" sm="80" rank="{1}" gdr="1"><nvlink target="ffffffff:ffff:ff" count="12" tclass="0x068000"/></gpu></pci>
            <pci busid="01{0}:00:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
            <nic><net name="mlx5_{1}" dev="{1}" speed="200000" port="1" gdr="1"/></nic></pci>)",
                        domains[i], i);
    }
    devices +=
        R"(<pci busid="0005:00:00.0" class="0x020000"><nic><net name="eth0" dev="8" speed="50000"/></nic></pci>)";
    const Graph detected = graph_of(
        R"(<cpu host_hash="0x17" numaid="0" affinity="00000000,00000000,00ffffff" arch="x86_64" vendor="AuthenticAMD">)" +
        devices + "</cpu>");
    const Merged both = merged(file.graph, detected);
    const Graph& graph = both.graph;
    CHECK(graph.hosts() == std::vector<std::string>{"0x17"});
    const Paths paths(graph);
    const auto path = [&](const char* source, const char* target) {
        return paths.between(node_named(graph, source), node_named(graph, target));
    };
    CHECK(path("gpu0", "gpu7").path_class == PathClass::nvl);
    CHECK(path("gpu0", "gpu7").bandwidth_gbs == 240);
    CHECK(path("gpu0", "mlx5_1").path_class == PathClass::pix);
    CHECK(path("gpu0", "mlx5_1").bandwidth_gbs == 24);
    CHECK(!path("gpu0", "mlx5_1").assumed);
    CHECK(path("gpu0", "mlx5_2").path_class == PathClass::sys);
    CHECK(path("eth0", "cpu0").path_class == PathClass::phb);
    // Those of the first cpu are under it in both.
    REQUIRE(both.notes.size() == 12);
    CHECK(both.notes[0] ==
          "gpu 0003:00:00.0 is under pci ffff:ff:02.0 in the file, but under cpu 0 as detected: the file's place is "
          "kept");
}

TEST_CASE("a graph merged with itself is the same, without notes", "[topology]") {
    for (const auto& file : files_in("machines")) {
        INFO(file);
        const auto machine = read_topology(file_text(file));
        REQUIRE(machine.ok());
        const Merged both = merged(machine->graph, machine->graph);
        CHECK(both.notes.empty());
        CHECK(both.graph == machine->graph);
    }
}

TEST_CASE("statements of the file are kept, and the contradiction is reported", "[topology]") {
    const Graph file = graph_of(R"(<cpu numaid="0" arch="x86_64" host_hash="0x1">
        <pci busid="0000:01:00.0" class="0x030200" link_speed="16 GT/s" link_width="8"><gpu dev="0" sm="80">
            <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu sm="80">
            <nvlink target="0000:01:00.0" count="4" tclass="0x030200"/></gpu></pci>
        <pci busid="0000:03:00.0" class="0x020000"><nic><net name="eth0" dev="0" speed="10000"/></nic></pci></cpu>)");
    const Graph detected = graph_of(R"(<cpu numaid="0" arch="x86_64" vendor="GenuineIntel" host_hash="0x2">
        <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="1" sm="80">
            <nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>
            <nvlink target="0000:04:00.0" count="2" tclass="0x030200"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" sm="86"/></pci>
        <pci busid="0000:03:00.0" class="0x020000"><nic><net name="eth0" dev="0" speed="25000" port="1"/>
            <net name="eth1" dev="1"/></nic></pci>
        <pci busid="0000:04:00.0" class="0x030200"><gpu dev="2" sm="80"/></pci>
        <nic><net name="bond0" dev="2"/></nic></cpu>)");
    const Merged both = merged(file, detected);
    CHECK(both.notes ==
          std::vector<std::string>{
              "the file was written on another host: its host_hash is 0x1, this one's 0x2",
              "link_width of gpu 0 (0000:01:00.0) is 8 in the file, but 16 as detected: the file's is kept",
              "dev of gpu 0 (0000:01:00.0) is 0 in the file, but 1 as detected: the file's is kept",
              "sm of gpu 0000:02:00.0 is 80 in the file, but 86 as detected: the file's is kept",
              "speed of port eth0 is 10000 in the file, but 25000 as detected: the file's is kept",
              "gpu 0 (0000:01:00.0) has 4 nvlink links to 0000:02:00.0 in the file, but 2 as detected: the file's are "
              "kept",
              "another nvlink link of gpu 0 (0000:01:00.0), to 0000:04:00.0, was detected, which the file does not "
              "state: it is left out"});
    const Graph& graph = both.graph;
    CHECK(graph.node(node_named(graph, "cpu0")).cpu.vendor == "GenuineIntel");
    CHECK(graph.node(node_named(graph, "eth0")).port.number == 1);
    CHECK(graph.node(node_named(graph, "eth1")).port.dev == 1);
    CHECK(graph.node(node_named(graph, "0000:02:00.0")).gpu.dev == unknown);
    CHECK(graph.node(graph.node(node_named(graph, "bond0")).parent).busid.empty());
    CHECK(node_named(graph, "gpu2") > 0);
}

TEST_CASE("a file of processors that the machine does not have is of another machine", "[topology]") {
    const auto machine = [](const std::string& facts) { return graph_of("<cpu numaid=\"0\" " + facts + "/>"); };
    const Graph here = machine("arch=\"x86_64\" vendor=\"AuthenticAMD\" affinity=\"f\"");
    CHECK(merged(machine("arch=\"arm64\""), here).foreign ==
          "the file is of another machine: arch of cpu 0 is arm64, and here it is x86_64");
    CHECK(merged(machine("arch=\"x86_64\" vendor=\"GenuineIntel\""), here).foreign ==
          "the file is of another machine: vendor of cpu 0 is GenuineIntel, and here it is AuthenticAMD");
    // A fact that is not stated, or not detected, contradicts none.
    for (const char* facts : {"", "arch=\"x86_64\"", "vendor=\"AuthenticAMD\" familyid=\"6\""})
        CHECK(merged(machine(facts), here).foreign == "");
    CHECK(merged(machine("arch=\"arm64\" vendor=\"ARM\""), machine("")).foreign == "");
}

TEST_CASE("a statement of one of two files is taken, and the first one's if both differ", "[topology]") {
    const std::string machine = R"(<cpu numaid="0">
        <pci busid="0000:01:00.0" class="0x030200"><gpu sm="90"{}><c2c bw="{}" count="10"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x020000"><nic><net name="eth0"{}/></nic></pci></cpu>)";
    const auto of = [&](const char* gpu, int mbs, const char* net) {
        return graph_of(fmt::format(fmt::runtime(machine), gpu, mbs, net));
    };
    const Merged both =
        merged(of("", 44712, R"( latency="1.5")"), of(R"( keep="1")", 20000, R"( latency="2" keep="1")"));
    CHECK(both.graph.node(node_named(both.graph, "0000:01:00.0")).gpu.keep == 1);
    CHECK(both.graph.node(node_named(both.graph, "eth0")).port.keep == 1);
    CHECK(both.notes == std::vector<std::string>{
                            "latency of port eth0 is 1.5 in the file, but 2 as detected: the file's is kept",
                            "gpu 0000:01:00.0 has 10 c2c links of 44712 MB/s in the file, but 10 of 20000 MB/s as "
                            "detected: the file's are kept"});
    const Graph other = of("", 44712, R"( latency="2")");
    CHECK(merged(of("", 44712, ""), other).graph.node(node_named(other, "eth0")).port.latency_us == 2);
}

TEST_CASE("a domain of several hosts that detection knows takes the place of the host's own", "[topology]") {
    const std::string gpu = R"(<cpu numaid="0"><pci busid="0008:01:00.0" class="0x030200"><gpu dev="0" sm="100"{}>
        <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/></gpu></pci></cpu>)";
    const Graph file = graph_of(fmt::format(fmt::runtime(gpu), ""));
    const Merged both = merged(file, graph_of(fmt::format(fmt::runtime(gpu), R"( domain="rack")")));
    CHECK(both.notes.empty());
    REQUIRE(both.graph.of_kind(NodeKind::nvswitch).size() == 1);
    CHECK(both.graph.name(both.graph.of_kind(NodeKind::nvswitch)[0]) == "nvswitch of domain rack");
}

TEST_CASE("devices of a file that were not detected are kept, with one note", "[topology]") {
    const Merged both = merged(read_machine("dgx_h100").graph, graph_of(R"(<cpu numaid="0"/>)"));
    CHECK(both.notes ==
          std::vector<std::string>{"16 devices of the file, gpu 0 (0000:1b:00.0) first, were not detected: "
                                   "is it of this machine, and may this process use them?"});
    CHECK(both.graph.of_kind(NodeKind::gpu).size() == 8);
}

TEST_CASE("devices below a switch that only detection saw come with it", "[topology]") {
    const Graph file = graph_of(R"(<cpu numaid="0"/>)");
    const auto machine = read_machine("dgx_h100");
    const Merged both = merged(file, machine.graph);
    CHECK(both.notes.empty());
    CHECK(both.graph.links().size() == machine.graph.links().size());
    CHECK(both.graph.hosts() == machine.graph.hosts());
}
