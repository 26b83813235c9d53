// A host as in /sys and /proc: made-up trees, whole, in part, denied and strange.
#include "topology/detect/discover.hpp"

#include <unistd.h>

#include <filesystem>

#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"
#include "tests/topology/system_tree.hpp"
#include "topology/detect/container.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/model/cpu_mask.hpp"
#include "topology/model/paths.hpp"
#include "topology/summary.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

constexpr const char* root_port = "pci0000:00/0000:00:01.0";
constexpr const char* switch_above = "pci0000:00/0000:00:01.0/0000:01:00.0";

// Two sockets; on the second one a switch with a GPU and a NIC of InfiniBand, beside it a NIC of Ethernet.
void make_server(SystemTree& tree) {
    tree.processors(2, 4);
    const std::string above = switch_above;
    tree.pci(root_port, "0x060400", "0x8086", 1);
    tree.pci(above, "0x060400", "0x1000", 1);
    tree.pci(above + "/0000:02:00.0", "0x060400", "0x1000", 1);
    tree.pci(above + "/0000:02:00.0/0000:1a:00.0", "0x030200", "0x10de", 1);
    tree.pci(above + "/0000:02:01.0", "0x060400", "0x1000", 1);
    const std::string nic = tree.pci(above + "/0000:02:01.0/0000:04:00.0", "0x020700", "0x15b3", 1);
    tree.rdma(nic, "mlx5_0");
    tree.network(nic, "ib0", 200000);
    tree.network(tree.pci("pci0000:00/0000:00:1f.0", "0x020000", "0x8086", 0, "8.0 GT/s PCIe", 4), "eth0", 10000);
    tree.pci("pci0000:00/0000:00:1e.0", "0x010802", "0x144d", 0);
    tree.file("proc/sys/kernel/osrelease", "6.1.0");
}

Path between(const Graph& graph, const char* source, const char* target) {
    return Paths(graph).between(node_named(graph, source), node_named(graph, target));
}

}  // namespace

TEST_CASE("a server is read from /sys: processors, caches, switches, devices, ports", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    const Discovered found = discovered(tree.sources());
    CHECK(found.notes.empty());
    const Graph& graph = found.graph;
    CHECK(graph.hosts()[0].substr(0, 2) == "0x");
    const Cpu& cpu = graph.node(node_named(graph, "cpu1")).cpu;
    CHECK(cpu.affinity == "ff00");
    CHECK(cpu.allowed.empty());
    CHECK(cpu.arch == "x86_64");
    CHECK(cpu.vendor == "GenuineIntel");
    CHECK(cpu.family == 6);
    CHECK(cpu.model == 143);
    CHECK(cpu.package == 1);
    CHECK(cpu.cores == 4);
    CHECK(cpu.caches == std::vector<Cache>{{2, 2 << 20, 2, 4}, {3, 32 << 20, 8, 1}});
    const Port& port = graph.node(node_named(graph, "mlx5_0")).port;
    CHECK(port.speed == 200000);
    CHECK(port.number == 1);
    CHECK(port.guid == "0x1aba650003a1420c");
    CHECK(port.gid == "fe80:0000:0000:0000:0c42:a103:0065:ba1a");
    CHECK(port.link_layer == "InfiniBand");
    CHECK(port.interface == "ib0");
    CHECK(graph.of_kind(NodeKind::port).size() == 2);  // ib0 is mlx5_0's
    CHECK(graph.of_kind(NodeKind::pci).size() == 1);   // a switch is one node
    CHECK(between(graph, "0000:1a:00.0", "mlx5_0").path_class == PathClass::pix);
    CHECK(between(graph, "0000:1a:00.0", "mlx5_0").bandwidth_gbs == 24);
    CHECK(between(graph, "0000:1a:00.0", "eth0").path_class == PathClass::sys);
    CHECK(between(graph, "eth0", "cpu0").bandwidth_gbs == 1.25);
    CHECK(!between(graph, "eth0", "cpu0").assumed);
    CHECK(summarize(graph) ==
          std::vector<std::string>{"2 packages, 2 NUMA domains, 8 cores, 4 x L2 2 MiB of 2 threads, 1 x L3 32 MiB of 8 "
                                   "threads in the first domain",
                                   "1 GPU", "2 ports: mlx5_0 200 Gb/s, eth0 10 Gb/s"});
}

TEST_CASE("a host of which nothing is known is one cpu, and its sentences say so", "[topology][discover]") {
    SystemTree tree;
    const Discovered found = discovered(tree.sources());
    CHECK(found.notes == std::vector<std::string>{"the NUMA domains of this host are unknown: it is taken for one"});
    REQUIRE(found.graph.nodes().size() == 1);
    CHECK(found.graph.node(0).cpu.numaid == 0);
    CHECK(found.graph.hosts() == std::vector<std::string>{""});
    Sources nowhere = tree.sources();
    nowhere.sys = nowhere.proc = "/nowhere";
    CHECK(discovered(nowhere).graph.node(0).cpu.affinity == "1");
}

TEST_CASE("one core without NUMA and packages is a machine", "[topology][discover]") {
    SystemTree tree;
    tree.file("sys/devices/system/cpu/online", "0");
    tree.file("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0");
    tree.network("", "lo", -1);
    tree.file("sys/class/net/lo/type", "772");
    tree.network("", "eth0", -1, "unknown");
    const Discovered found = discovered(tree.sources());
    const Graph& graph = found.graph;
    CHECK(graph.node(0).cpu.cores == 1);
    CHECK(graph.node(0).cpu.package == unknown);
    REQUIRE(graph.of_kind(NodeKind::port).size() == 1);  // of software, for there is no other
    CHECK(graph.node(node_named(graph, "eth0")).port.speed == unknown);
    CHECK(summarize(graph)[0] == "1 NUMA domain, 1 core");
}

TEST_CASE("without a part of /sys, or with nonsense in it, the rest is used", "[topology][discover]") {
    for (const char* part :
         {"sys/devices/system/node", "sys/devices/system/cpu/cpu0", "sys/devices/system/cpu/cpu3/cache", "sys/bus/pci",
          "sys/class", "sys/class/infiniband", "proc", "proc/cpuinfo", "sys/devices/system/cpu/online",
          "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/class",
          "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0"}) {
        INFO(part);
        SystemTree tree;
        make_server(tree);
        tree.remove(part);
        CHECK(!discovered(tree.sources()).graph.of_kind(NodeKind::cpu).empty());
    }
    for (const char* text : {"", "-1", "99999999999999999999", "x", "0-99999999", "7-3", "0-3,,5", "0x", "Unknown"}) {
        INFO(text);
        SystemTree tree;
        make_server(tree);
        const std::string gpu = "sys/bus/pci/devices/0000:1a:00.0/";
        for (const std::string& file :
             {std::string("sys/devices/system/node/node0/cpulist"), std::string("sys/devices/system/cpu/online"),
              std::string("sys/devices/system/cpu/cpu1/topology/physical_package_id"),
              std::string("sys/devices/system/cpu/cpu2/cache/index3/size"),
              std::string("sys/devices/system/cpu/cpu2/cache/index3/level"),
              std::string("sys/devices/system/cpu/cpu2/cache/index2/shared_cpu_list"), gpu + "numa_node",
              gpu + "max_link_speed", gpu + "max_link_width", gpu + "class", std::string("sys/class/net/eth0/speed"),
              std::string("sys/class/net/eth0/dev_port"), std::string("sys/class/infiniband/mlx5_0/ports/1/rate"),
              std::string("sys/class/infiniband/mlx5_0/ports/1/state"), std::string("proc/cpuinfo"),
              std::string("proc/self/cgroup"), std::string("sys/fs/cgroup/cpu.max"),
              std::string("proc/thread-self/status")})
            tree.file(file, text);
        CHECK(!discovered(tree.sources()).graph.of_kind(NodeKind::cpu).empty());
    }
}

TEST_CASE("names and values of any bytes end in a graph that can be written and read", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    tree.network("sys/bus/pci/devices/0000:00:1f.0", "en\xff\x01", 1000);
    tree.file("sys/bus/pci/devices/0000:1a:00.0/device", "0\x85\xce");
    const Graph graph = discovered(tree.sources()).graph;
    CHECK(node_named(graph, "en??") > 0);
    CHECK(graph.node(node_named(graph, "0000:1a:00.0")).pci.device == "0??");
}

TEST_CASE("unreadable files are reported, in a bounded number of sentences", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    // A loop of links is refused to root, too.
    for (const char* name :
         {"sys/class/net/eth0/speed", "sys/class/infiniband", "sys/devices/system/node",
          "sys/bus/pci/devices/0000:04:00.0/class", "sys/bus/pci/devices/0000:1a:00.0/class", "proc/cpuinfo"}) {
        tree.remove(name);
        tree.link(name, name);
    }
    const Discovered found = discovered(tree.sources());
    CHECK(says(found.notes, "sys/devices/system/node cannot be read: "));
    CHECK(says(found.notes, "proc/cpuinfo cannot be read: "));
    CHECK(says(found.notes, "more files of "));
    CHECK(found.notes.size() <= 8);
    if (geteuid() == 0) return;
    SystemTree denied;
    make_server(denied);
    std::filesystem::permissions(denied.path() / "sys/class", std::filesystem::perms::none);
    CHECK(says(discovered(denied.sources()).notes, "sys/class/net cannot be read: Permission denied"));
    std::filesystem::permissions(denied.path() / "sys/class", std::filesystem::perms::owner_all);
}

TEST_CASE("a link that runs below its speed counts as it runs, with a note", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    tree.file("sys/bus/pci/devices/0000:04:00.0/current_link_width", "8");
    tree.file("sys/bus/pci/devices/0000:1a:00.0/current_link_speed", "2.5 GT/s PCIe");  // it rests
    tree.file("sys/bus/pci/devices/0000:02:00.0/max_link_speed", "8.0 GT/s PCIe");      // its slot
    tree.file("sys/bus/pci/devices/0000:02:01.0/current_link_width", "8");              // the NIC's slot
    const Discovered found = discovered(tree.sources());
    CHECK(found.notes == std::vector<std::string>{
                             "0000:04:00.0 runs at 16.0 GT/s PCIe x8, though it and its slot can 16.0 GT/s PCIe x16"});
    const Graph& graph = found.graph;
    CHECK(graph.node(node_named(graph, "0000:04:00.0")).pci.link_width == 8);
    CHECK(graph.node(node_named(graph, "0000:1a:00.0")).pci.link_speed == "8.0 GT/s PCIe");
}

TEST_CASE("a virtual function has the link of its device, a port that is down is left out", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    const std::string parent = std::string(switch_above) + "/0000:02:01.0";
    const std::string function = tree.pci(parent + "/0000:04:00.1", "0x020700", "0x15b3", 1, "Unknown", 0);
    tree.link(function + "/physfn", "sys/devices/" + parent + "/0000:04:00.0");
    tree.rdma(function, "mlx5_1");
    tree.file("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    tree.network(tree.pci("pci0000:00/0000:00:1d.0", "0x020000", "0x8086"), "eth1", -1, "down");
    const Discovered found = discovered(tree.sources());
    CHECK(says(found.notes, "not up, and left out: port 1 of mlx5_0 (1: DOWN), eth1"));
    const Graph& graph = found.graph;
    const Pci& pci = graph.node(node_named(graph, "0000:04:00.1")).pci;
    CHECK(pci.virtual_of == "0000:04:00.0");
    CHECK(pci.link_speed == "16.0 GT/s PCIe");
    CHECK(pci.link_width == 16);
    CHECK(between(graph, "mlx5_1", "0000:1a:00.0").path_class == PathClass::pix);
}

TEST_CASE("a port of virtual functions is none, and a NIC's ports are bounded", "[topology][discover]") {
    SystemTree tree;
    tree.processors(1, 1);
    const std::string nic = tree.pci("pci0000:00/0000:00:1d.0", "0x020000", "0x15b3");
    tree.network(nic, "eth0", 100000);
    tree.network(nic, "eth0_1", 100000);
    tree.file("sys/class/net/eth0_1/phys_port_name", "pf0vf1");
    CHECK(discovered(tree.sources()).graph.of_kind(NodeKind::port).size() == 1);
    for (int i = 0; i < 300; ++i) tree.network(nic, fmt::format("port{}", i), 1000);
    const Discovered found = discovered(tree.sources());
    CHECK(found.graph.of_kind(NodeKind::port).size() == 256);
    CHECK(says(found.notes, "0000:00:1d.0 has 301 ports: 256 are used"));
}

TEST_CASE("over Ethernet a port is reached by its address of RoCE version 2", "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";
    tree.file(port + "link_layer", "Ethernet");
    const char* gids[] = {"fe80:0000:0000:0000:0e42:a1ff:fe65:ba1a", "fe80:0000:0000:0000:0e42:a1ff:fe65:ba1a",
                          "0000:0000:0000:0000:0000:ffff:0a00:0001", "0000:0000:0000:0000:0000:ffff:0a00:0001",
                          "0000:0000:0000:0000:0000:0000:0000:0000"};
    const char* types[] = {"IB/RoCE v1", "RoCE v2", "IB/RoCE v1", "RoCE v2", ""};
    for (int i = 0; i < 5; ++i) {
        tree.file(port + fmt::format("gids/{}", i), gids[i]);
        tree.file(port + fmt::format("gid_attrs/types/{}", i), types[i]);
    }
    const Discovered found = discovered(tree.sources());
    CHECK(found.graph.node(node_named(found.graph, "mlx5_0")).port.gid == gids[3]);
}

TEST_CASE("devices of a NUMA domain that is unknown, or has no processors, are placed and said",
          "[topology][discover]") {
    SystemTree tree;
    make_server(tree);
    tree.file("sys/bus/pci/devices/0000:00:1f.0/numa_node", "7");
    tree.network(tree.pci("pci0000:00/0000:00:1d.0", "0x020000", "0x8086"), "eth1", 1000);
    tree.file("sys/devices/system/node/node2/cpulist", "");  // a GPU's memory
    const Discovered found = discovered(tree.sources());
    CHECK(found.notes == std::vector<std::string>{
                             "1 PCI device is of an unknown NUMA domain: placed under cpu 0",
                             "1 PCI device is of NUMA domain 7, which has no processors here: placed under cpu 0"});
    CHECK(found.graph.of_kind(NodeKind::cpu).size() == 2);
}

TEST_CASE("folders that go round in circles come to an end", "[topology][discover]") {
    SystemTree tree;
    tree.processors(1, 1);
    std::string way = "pci0000:00";
    for (int i = 0; i < 100; ++i) way += i % 2 == 0 ? "/0000:00:01.0" : "/0000:00:02.0";
    tree.pci(way, "0x060400", "0x8086");
    tree.pci(way + "/0000:05:00.0", "0x020000", "0x8086");
    std::string deep = "pci0001:00";
    for (int i = 0; i < 60; ++i) {
        deep += fmt::format("/0001:{:02x}:00.0", i);
        tree.pci(deep, "0x060400", "0x8086");
    }
    tree.pci(deep + "/0001:f0:00.0", "0x030200", "0x10de");
    const Discovered found = discover(tree.sources());
    CHECK(node_named(found.graph, "0000:05:00.0") > 0);
    CHECK(node_named(found.graph, "0001:f0:00.0") > 0);
}

TEST_CASE("a container sees half of the cores", "[topology][discover]") {
    SystemTree tree;
    tree.processors(2, 4);
    tree.network("", "eth0", 10000);
    tree.allow("0-7");
    const Discovered found = discovered(tree.sources());
    CHECK(found.notes == std::vector<std::string>{"this process may run on 8 of the 16 hardware threads: 0-7"});
    const auto machine = read_machine("container_half");
    Graph expected = machine.graph;
    expected.name_host(0, found.graph.hosts()[0]);
    CHECK(write_topology(found.graph) == write_topology(expected));
    tree.allow("2-3,8");
    const Graph part = discovered(tree.sources()).graph;
    CHECK(part.node(node_named(part, "cpu0")).cpu.allowed == "c");
    CHECK(part.node(node_named(part, "cpu1")).cpu.allowed == "100");
}

TEST_CASE("control groups of both versions limit the time, the least of all above counts", "[topology][discover]") {
    const auto quota = [](const SystemTree& tree) {
        SystemFiles sys(tree.path() / "sys"), proc(tree.path() / "proc");
        return cpu_quota(sys, proc).cores;
    };
    SystemTree two;
    two.processors(1, 4);
    CHECK(quota(two) == 0);
    two.file("proc/self/cgroup", "0::/pods/one");
    two.file("sys/fs/cgroup/pods/one/cpu.max", "max 100000");
    CHECK(quota(two) == 0);
    two.file("sys/fs/cgroup/pods/cpu.max", "250000 100000");
    CHECK(quota(two) == 2.5);
    two.file("sys/fs/cgroup/pods/one/cpu.max", "300000 100000");
    CHECK(quota(two) == 2.5);
    const Discovered found = discovered(two.sources());
    CHECK(found.notes == std::vector<std::string>{"control groups give this process the time of 2.5 hardware threads"});
    // A process below the limiting group shares its time.
    const auto group = [&](const char* path) {
        two.file("proc/self/cgroup", path);
        SystemFiles sys(two.path() / "sys"), proc(two.path() / "proc");
        return cpu_quota(sys, proc).group;
    };
    two.file("sys/fs/cgroup/pods/two/cpu.max", "max 100000");
    two.file("sys/fs/cgroup/other/cpu.max", "250000 100000");
    CHECK(group("0::/pods/one") == group("0::/pods/two"));
    CHECK(group("0::/pods/one") != group("0::/other"));
    // In a container of version 1 the path is the host's, and its own group is mounted as the root.
    SystemTree one;
    one.file("proc/self/cgroup", "5:memory:/docker/77\n4:cpu,cpuacct:/docker/77\n0::/");
    one.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
    one.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
    CHECK(quota(one) == 0);
    one.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000");
    CHECK(quota(one) == 0.5);
    one.file("proc/self/cgroup", "4:cpu:/../../elsewhere");
    CHECK(quota(one) == 0);
}

TEST_CASE("this machine is detected, of any kind", "[topology][discover]") {
    for (const char* library : {"", "none", "/nowhere/libhwloc.so"}) {
        Sources sources;
        sources.hwloc_library = library;
        const Discovered found = discovered(sources);
        CHECK(!found.graph.of_kind(NodeKind::cpu).empty());
    }
}

TEST_CASE("sets of hardware threads, as lists and masks", "[topology][discover]") {
    CHECK(CpuMask::from_list("0-3,8").mask() == "10f");
    CHECK(CpuMask::from_list("0-3,8").list() == "0-3,8");
    CHECK(CpuMask::from_list("32-63").mask() == "ffffffff,00000000");
    CHECK(CpuMask::from_list("0,64").mask() == "1,00000000,00000001");
    CHECK(CpuMask::from_list("63-64").list() == "63-64");
    CHECK(CpuMask::from_list("5").first() == 5);
    CHECK(CpuMask::from_list("5,130").last() == 130);
    CHECK(CpuMask::from_list("").mask() == "");
    CHECK(CpuMask::from_list("").first() == -1);
    CHECK(CpuMask::from_list("a,3").empty());
    CHECK((CpuMask::from_list("0-200") & CpuMask::from_list("100")).list() == "100");
    CHECK((CpuMask::from_list("0-200") & CpuMask::from_list("300")).empty());
}
