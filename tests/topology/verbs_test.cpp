// RDMA devices of a fake libibverbs: devices that /sys hides, that cannot be opened, are down, or do not take device
// memory. Also an old library, one that is none, and none.
#include "src/drivers/verbs/verbs.hpp"

#include <cerrno>
#include <cstdlib>

#include "tests/catch.hpp"
#include "tests/subprocess.hpp"
#include "tests/topology/machines.hpp"
#include "tests/topology/system_tree.hpp"
#include "topology/detect/hardware.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

constexpr const char* ndr_port = "port 4 2 128 1; gid fe80:0000:0000:0000:0c42:a103:0065:ba1a 0";

// A cpu, and a NIC at its root port.
class VerbsHost {
  public:
    explicit VerbsHost(const std::string& world) {
        setenv("FAKE_VERBS", world.c_str(), 1);
        tree.processors(1, 2);
        nic = tree.pci("pci0000:00/0000:00:01.0/0000:04:00.0", "0x020700", "0x15b3", 0);
    }
    ~VerbsHost() { unsetenv("FAKE_VERBS"); }
    VerbsHost(const VerbsHost&) = delete;

    Discovered discover(const std::string& library = FAKE_VERBS_LIBRARY) const {
        Sources sources = tree.sources();
        sources.verbs_library = library;
        return discovered(sources);
    }
    void gpu() {
        tree.pci("pci0000:00/0000:00:02.0/0000:1a:00.0", "0x030200", "0x10de", 0);
        tree.file("proc/sys/kernel/osrelease", "6.1.0");
        tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06");
    }

    SystemTree tree;
    std::string nic;
};

const Port& port_of(const Discovered& found, const char* name) {
    return found.graph.node(node_named(found.graph, name)).port;
}
bool has_port(const Discovered& found, const std::string& name) {
    for (const int port : found.graph.of_kind(NodeKind::port))
        if (found.graph.node(port).port.name == name) return true;
    return false;
}

}  // namespace

TEST_CASE("libibverbs adds facts of an RDMA device that /sys lacks", "[topology][verbs]") {
    VerbsHost host(std::string("device mlx5_0; ") + ndr_port);
    // No rate, no link layer, no GID, no GUID.
    host.tree.file(host.nic + "/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    host.tree.link(host.nic + "/infiniband/mlx5_0/device", host.nic);
    host.tree.link("sys/class/infiniband/mlx5_0", host.nic + "/infiniband/mlx5_0");
    const Discovered found = host.discover();
    CHECK(found.notes.empty());
    const Port& port = port_of(found, "mlx5_0");
    CHECK(port.speed == 400'000);
    CHECK(port.number == 1);
    CHECK(port.link_layer == "InfiniBand");
    CHECK(port.guid == "0x1aba650003a1420c");
    CHECK(port.gid == "fe80:0000:0000:0000:0c42:a103:0065:ba1a");
    CHECK(found.graph.of_kind(NodeKind::port).size() == 1);
    // It stands where /sys has its device.
    CHECK(found.graph.node(found.graph.node(node_named(found.graph, "mlx5_0")).parent).busid == "0000:04:00.0");
}

TEST_CASE("facts of /sys stand, and a device that it hides is added", "[topology][verbs]") {
    VerbsHost host(
        std::string("device mlx5_0; port 4 2 32 2; device rxe0; port 4 1 32 2; "
                    "gid fe80:0000:0000:0000:0000:0000:0000:0001 1; "
                    "gid 0000:0000:0000:0000:0000:ffff:0a00:0001 1; "
                    "gid 0000:0000:0000:0000:0000:ffff:0a00:0002 2"));
    host.tree.rdma(host.nic, "mlx5_0");
    const Discovered found = host.discover();
    CHECK(found.notes.empty());
    CHECK(port_of(found, "mlx5_0").speed == 200'000);
    CHECK(port_of(found, "mlx5_0").link_layer == "InfiniBand");
    CHECK(port_of(found, "rxe0").speed == 25'000);
    CHECK(port_of(found, "rxe0").link_layer == "Ethernet");
    CHECK(port_of(found, "rxe0").gid == "0000:0000:0000:0000:0000:ffff:0a00:0002");
}

TEST_CASE("a device that cannot be opened or queried has the facts of /sys, with a note", "[topology][verbs]") {
    for (const auto& [mode, why] :
         {std::pair{"denied", "mlx5_0 cannot be opened: "}, std::pair{"mute", "mlx5_0 does not answer: "}}) {
        VerbsHost host(std::string("device mlx5_0 ") + mode + "; port 4 2 32 1");
        host.tree.rdma(host.nic, "mlx5_0");
        const Discovered found = host.discover();
        REQUIRE(found.notes.size() == 1);
        CHECK(found.notes[0].find(why) == 0);
        CHECK(found.notes[0].find(": it is what ") != std::string::npos);
        CHECK((std::string(mode) == "mute" ||
               says(found.notes, "RDMA takes the right to read and write /dev/infiniband/uverbs0")));
        CHECK(port_of(found, "mlx5_0").speed == 200'000);
    }
}

TEST_CASE("ports that are down are ignored, with one note", "[topology][verbs]") {
    VerbsHost host(std::string("device mlx5_0; port 1 2 128 1; port 2 2 128 1; device mlx5_1; port 1 2 128 1"));
    // The first is up by /sys, which is late; the second is one that /sys has down itself; the third /sys has not.
    host.tree.rdma(host.nic, "mlx5_0");
    host.tree.file(host.nic + "/infiniband/mlx5_0/ports/2/state", "1: DOWN");
    const Discovered found = host.discover();
    CHECK(found.notes == std::vector<std::string>{"not up, and left out: port 2 of mlx5_0 (1: DOWN)",
                                                  "not up, and left out: port 1 of mlx5_0 (DOWN)",
                                                  "not up, and left out: port 1 of mlx5_1 (DOWN)"});
    CHECK(!has_port(found, "mlx5_0"));
    CHECK(!has_port(found, "mlx5_1"));
}

TEST_CASE("a port that does not answer has the facts of /sys, with a note", "[topology][verbs]") {
    VerbsHost host("device mlx5_0; port mute; device rxe0; port mute; port 4 2 32 2");
    host.tree.rdma(host.nic, "mlx5_0");
    const Discovered found = host.discover();
    REQUIRE(found.notes.size() == 2);
    CHECK(found.notes[0].find("port 1 of mlx5_0 does not answer: ") == 0);
    CHECK(found.notes[0].find(": it is what ") != std::string::npos);
    CHECK(port_of(found, "mlx5_0").speed == 200'000);
    // One that /sys does not have.
    CHECK(found.notes[1].find("port 1 of rxe0 does not answer: ") == 0);
    CHECK(found.notes[1].find(": it is left out") != std::string::npos);
    CHECK(port_of(found, "rxe0").number == 2);
    CHECK(found.graph.of_kind(NodeKind::port).size() == 2);
}

TEST_CASE("speeds are width times the rate of a lane; strange ones are unknown", "[topology][verbs]") {
    struct Row {
        const char* port;
        int mbps;
    };
    for (const auto& [port, mbps] :
         {Row{"port 4 2 64 1", 200'000}, Row{"port 5 1 16 1", 14'000}, Row{"port 4 16 32 1", 50'000},
          Row{"port 4 8 4 1", 120'000}, Row{"port 4 3 32 1", unknown}, Row{"port 4 2 0 1", unknown}}) {
        INFO(port);
        const VerbsHost host(std::string("device a; ") + port);
        CHECK(port_of(host.discover(), "a").speed == mbps);
    }
}

TEST_CASE("GPUDirect by dma-buf takes a library and a driver that register it", "[topology][verbs]") {
    const auto gdr = [](const std::string& world, bool peermem, const char* library, std::vector<std::string>& notes) {
        VerbsHost host(world);
        host.tree.rdma(host.nic, "mlx5_0");
        host.gpu();
        // No NVML: hwloc's or a file's would name the GPU.
        if (peermem) host.tree.file("sys/module/nvidia_peermem/version", "1");
        SystemFiles sys(host.tree.path() / "sys"), proc(host.tree.path() / "proc");
        Hardware hardware;
        add_interfaces(sys, hardware);
        hardware.gpus["0000:1a:00.0"].dev = 0;
        const auto devices = verbs::devices(library);
        REQUIRE(devices.ok());
        add_verbs(*devices, sys, hardware);
        add_gpudirect(sys, proc, hardware);
        notes = hardware.notes;
        REQUIRE(!hardware.interfaces.empty());
        CHECK(hardware.gpus["0000:1a:00.0"].gdr == hardware.interfaces[0].port.gdr);
        return hardware.interfaces[0].port.gdr;
    };
    std::vector<std::string> notes;
    const std::string device = "device mlx5_0; port 4 2 128 1; dma_buf ";
    CHECK(gdr(device + std::to_string(EBADF), false, FAKE_VERBS_LIBRARY, notes) == 1);
    CHECK(notes.empty());
    CHECK(gdr(device + std::to_string(EOPNOTSUPP), false, FAKE_VERBS_LIBRARY, notes) == 0);
    CHECK(says(notes, "port 1 of mlx5_0 does not reach the memory of GPUs: its driver, or this libibverbs"));
    CHECK(gdr(device + std::to_string(EBADF), false, OLD_VERBS_LIBRARY, notes) == 0);
    CHECK(says(notes, "port 1 of mlx5_0 does not reach the memory of GPUs"));
    CHECK(gdr(device + std::to_string(EOPNOTSUPP), true, FAKE_VERBS_LIBRARY, notes) == 1);
    CHECK(notes.empty());
}

TEST_CASE("an old libibverbs gives the facts that it has", "[topology][verbs]") {
    const VerbsHost host(std::string("device mlx5_0; ") + ndr_port);
    const Discovered found = host.discover(OLD_VERBS_LIBRARY);
    CHECK(found.notes.empty());
    CHECK(port_of(found, "mlx5_0").gid == "fe80:0000:0000:0000:0c42:a103:0065:ba1a");
    CHECK(port_of(found, "mlx5_0").speed == 400'000);
}

TEST_CASE("without libibverbs, or devices, RDMA devices have the facts of /sys", "[topology][verbs]") {
    VerbsHost host("none");
    host.tree.rdma(host.nic, "mlx5_0");
    CHECK(host.discover().notes.empty());
    CHECK(port_of(host.discover(), "mlx5_0").speed == 200'000);
    struct Row {
        const char *library, *note;
    };
    for (const auto& [library, note] :
         {Row{"none", "WEFT_VERBS_LIBRARY is none: the RDMA devices are those of "},
          Row{"/nowhere/libibverbs.so", "no libibverbs: /nowhere/libibverbs.so"},
          Row{NO_VERBS_LIBRARY, "is another library, or too old: the RDMA devices are those of "}}) {
        INFO(library);
        const Discovered found = host.discover(library);
        CHECK(says(found.notes, note));
        CHECK(found.notes.size() == 1);
        CHECK(port_of(found, "mlx5_0").speed == 200'000);
    }
    setenv("FAKE_VERBS", "error", 1);
    CHECK(says(host.discover().notes,
               "libibverbs lists no devices: the kernel has no RDMA: the RDMA devices are those of "));
}

// On any machine: the real library, if it is there, is asked and leaves nothing open.
TEST_CASE("this machine's own libibverbs answers or is missing", "[topology][verbs]") {
    const auto devices = verbs::devices("");
    if (!devices) CHECK(!devices.status().sentence().empty());
}

#ifdef WEFT_COMMAND
TEST_CASE("weft info topology asks the library that WEFT_VERBS_LIBRARY names", "[topology][verbs]") {
    const ProcessResult shown =
        run({WEFT_COMMAND, "info", "topology"},
            {"WEFT_VERBS_LIBRARY=" FAKE_VERBS_LIBRARY, std::string("FAKE_VERBS=device rxe7; ") + ndr_port});
    CHECK(shown.status == 0);
    CHECK(shown.output.find("port rxe7: dev ") != std::string::npos);
    CHECK(shown.output.find("InfiniBand, GID fe80:0000:0000:0000:0c42:a103:0065:ba1a, 50 GB/s") != std::string::npos);
    const ProcessResult without = run({WEFT_COMMAND, "info", "topology"}, {"WEFT_VERBS_LIBRARY=/nowhere"});
    CHECK(without.status == 0);
    CHECK(without.error.find("no libibverbs: /nowhere") != std::string::npos);
}
#endif
