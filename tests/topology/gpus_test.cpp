// GPUs of a fake NVML: links to each other, to switches, to the cpu, down, hidden. Lost GPUs, and a library that is old
// or refuses.
#include <memory>

#include "tests/catch.hpp"
#include "tests/fake_cuda/control.hpp"
#include "tests/topology/machines.hpp"
#include "tests/topology/system_tree.hpp"
#include "topology/model/paths.hpp"
#include "topology/summary.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

// A host with as many GPUs as the fake library has, a root port each, on two sockets.
class GpuHost {
  public:
    explicit GpuHost(const std::string& setting, int gpus = 2) {
        fake::reset(fmt::format("gpus {}; {}", gpus, setting));
        tree.processors(2, 2);
        for (int i = 0; i < gpus; ++i) {
            const std::string above = fmt::format("pci0000:00/0000:00:{:02x}.0", i + 1);
            tree.pci(above, "0x060400", "0x8086", 2 * i / gpus);
            tree.pci(above + fmt::format("/0000:{:02x}:00.0", 0x1a + i), "0x030200", "0x10de", 2 * i / gpus);
        }
    }
    ~GpuHost() { fake::reset(""); }
    GpuHost(const GpuHost&) = delete;

    Discovered discover(const std::string& library = FAKE_CUDA_LIBRARY) const {
        auto opened = nvml::Nvml::open(library);
        INFO(opened.status().sentence());
        REQUIRE(opened.ok());
        const std::unique_ptr<const nvml::Nvml> nvml(*opened);
        Sources sources = tree.sources();
        sources.nvml = nvml.get();
        return discovered(sources);
    }

    SystemTree tree;
};

std::string switched(int gpus, int links, const char* end) {
    std::string setting;
    for (int gpu = 0; gpu < gpus; ++gpu)
        for (int link = 0; link < links; ++link) setting += fmt::format("nvlink {} {} {};", gpu, link, end);
    return setting;
}

}  // namespace

TEST_CASE("GPUs linked with each other are shown with their links", "[topology][nvml]") {
    const GpuHost host("nvlink 0 0 1; nvlink 0 1 1; nvlink 1 0 0; nvlink 1 1 0");
    const Discovered found = host.discover();
    CHECK(found.notes.empty());
    const int gpu = node_named(found.graph, "gpu0");
    CHECK(found.graph.node(gpu).busid == "0000:1a:00.0");
    CHECK(found.graph.node(gpu).gpu.sm == 90);
    const Path path = Paths(found.graph).between(gpu, node_named(found.graph, "gpu1"));
    CHECK(path.path_class == PathClass::nvl);
    CHECK(path.bandwidth_gbs == Approx(41.2));
    CHECK(summarize(found.graph)[1] == "2 GPUs of sm 90, all pairs NVL, 41.2 GB/s");
}

TEST_CASE("NVSwitches join GPUs, seen or hidden", "[topology][nvml]") {
    for (const char* end : {"switch", "hidden"}) {
        INFO(end);
        const GpuHost host(switched(4, 18, end), 4);
        const Discovered found = host.discover();
        CHECK(found.notes.empty());
        CHECK(found.graph.of_kind(NodeKind::nvswitch).size() == 1);
        CHECK(summarize(found.graph)[1] == "4 GPUs of sm 90, all pairs NVL, 371 GB/s");
    }
}

TEST_CASE("an NVLink that leads to its own GPU is ignored with a note, and the GPUs are known", "[topology][nvml]") {
    const GpuHost host("nvlink 0 0 0; nvlink 0 1 1; nvlink 1 0 0");
    const Discovered found = host.discover();
    CHECK(found.notes ==
          std::vector<std::string>{"NVML says that NVLink 0 of 0000:1a:00.0 leads to itself: it is left out"});
    CHECK(found.graph.of_kind(NodeKind::gpu).size() == 2);
}

TEST_CASE("links that are down are ignored with a note", "[topology][nvml]") {
    const GpuHost host("nvlink 0 0 1; nvlink 0 1 down; nvlink 1 0 0; nvlink 1 1 down");
    const Discovered found = host.discover();
    CHECK(found.notes == std::vector<std::string>{"1 of 2 NVLinks of GPU 0 (0000:1a:00.0) are down",
                                                  "1 of 2 NVLinks of GPU 1 (0000:1b:00.0) are down"});
    CHECK(Paths(found.graph).between(node_named(found.graph, "gpu0"), node_named(found.graph, "gpu1")).bandwidth_gbs ==
          Approx(20.6));
}

TEST_CASE("GPUs with unused NVLinks miss none", "[topology][nvml]") {
    const GpuHost host(switched(2, 12, "down"));
    CHECK(host.discover().notes.empty());
}

TEST_CASE("C2C leads to the GPU's own cpu, a fabric joins hosts", "[topology][nvml]") {
    const GpuHost host("c2c 0 10 45000; fabric 0 7; " + switched(1, 18, "switch"));
    const Discovered found = host.discover();
    const int gpu = node_named(found.graph, "gpu0");
    const Path path = Paths(found.graph).between(gpu, node_named(found.graph, "cpu0"));
    CHECK(path.path_class == PathClass::c2c);
    CHECK(path.bandwidth_gbs == 450);
    CHECK(found.graph.node(gpu).gpu.domain == "abababababababababababababababab.7");
    REQUIRE(found.graph.of_kind(NodeKind::nvswitch).size() == 1);
    CHECK(found.graph.node(found.graph.of_kind(NodeKind::nvswitch)[0]).host == -1);
}

TEST_CASE("a lost GPU is noted, the others are used", "[topology][nvml]") {
    const GpuHost host("lost 1; nvlink 0 0 1");
    const Discovered found = host.discover();
    CHECK(says(found.notes, "NVML does not describe GPU 1: the GPU is lost (15)"));
    CHECK(says(found.notes, "0000:1b:00.0 is a GPU that NVML does not list"));
    CHECK(found.graph.node(node_named(found.graph, "0000:1b:00.0")).gpu.dev == unknown);
    CHECK(node_named(found.graph, "gpu0") > 0);
}

TEST_CASE("an NVML that is old, refuses or fails leaves the facts of /sys", "[topology][nvml]") {
    {
        const GpuHost host("fault nvmlDeviceGetCount_v2 0 4");
        const Discovered found = host.discover();
        CHECK(found.notes == std::vector<std::string>{"NVML cannot count the GPUs: no permission (4)"});
        CHECK(found.graph.of_kind(NodeKind::gpu).size() == 2);
    }
    {
        const GpuHost host("fault nvmlDeviceGetHandleByIndex_v2 0 999; fault nvmlDeviceGetCudaComputeCapability 0 3");
        CHECK(host.discover().graph.of_kind(NodeKind::gpu).size() == 2);
    }
    {
        const GpuHost host("fault nvmlDeviceGetCudaComputeCapability 0 3");
        const Discovered found = host.discover();
        CHECK(found.graph.node(node_named(found.graph, "gpu0")).gpu.sm == unknown);
    }
    const GpuHost host("");
    const Discovered found = host.discover(OLD_NVML_LIBRARY);
    CHECK(found.notes == std::vector<std::string>{"this NVML is too old to list GPUs: their links are unknown"});
    CHECK(found.graph.of_kind(NodeKind::gpu).size() == 2);
}

TEST_CASE("GPUs that /sys hides have the facts of NVML", "[topology][nvml]") {
    const GpuHost host("nvlink 0 0 1; nvlink 1 0 0");
    fake::add_setting("");
    SystemTree bare;
    bare.processors(1, 2);
    auto opened = nvml::Nvml::open(FAKE_CUDA_LIBRARY);
    REQUIRE(opened.ok());
    const std::unique_ptr<const nvml::Nvml> nvml(*opened);
    Sources sources = bare.sources();
    sources.nvml = nvml.get();
    const Discovered found = discovered(sources);
    const Node& gpu = found.graph.node(node_named(found.graph, "gpu1"));
    CHECK(gpu.pci.link_speed == "32.0 GT/s PCIe");
    CHECK(gpu.pci.link_width == 16);
    CHECK(gpu.pci.device_class == "0x030200");
}

TEST_CASE("NICs reach GPUs' memory by nvidia-peermem or dma-buf", "[topology][nvml]") {
    GpuHost host("");
    SystemTree& tree = host.tree;
    tree.rdma(tree.pci("pci0000:00/0000:00:1f.0", "0x020700", "0x15b3", 0), "mlx5_0");
    tree.file("proc/sys/kernel/osrelease", "5.11.0-generic");
    tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06");
    const auto gdr = [&] {
        const Discovered found = host.discover();
        CHECK(says(found.notes, "NICs do not reach the memory of GPUs") ==
              (found.graph.node(node_named(found.graph, "mlx5_0")).port.gdr == 0));
        return found.graph.node(node_named(found.graph, "mlx5_0")).port.gdr;
    };
    CHECK(gdr() == 0);
    tree.file("proc/sys/kernel/osrelease", "6.1.0-18-amd64");
    CHECK(gdr() == 1);
    tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.1");
    CHECK(gdr() == 0);
    tree.file("sys/module/nvidia_peermem/version", "535.1");
    CHECK(gdr() == 1);
}
