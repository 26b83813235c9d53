// `weft topology show`: what it prints, writes and returns.
#include "tests/catch.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tests/topology/machines.hpp"

using namespace weft;
using namespace weft::test;

static const std::string folder = std::string(WEFT_TOPOLOGY) + "/";

TEST_CASE("weft topology show prints the tree, the links and the paths of a machine", "[topology]") {
    const Outcome shown = run({WEFT_COMMAND, "topology", "show", folder + "machines/a100_bridge.xml"});
    CHECK(shown.status == 0);
    CHECK(shown.error == "");
    CHECK(shown.output == R"(host 0
  cpu 0: x86_64, AuthenticAMD, family 175, model 1, affinity ffff
    gpu 0 (0000:21:00.0): sm 80, rank 0, 16.0 GT/s PCIe x16, 24 GB/s
    gpu 1 (0000:41:00.0): sm 80, rank 1, 16.0 GT/s PCIe x16, 24 GB/s
    nic 0000:61:00.0: 16.0 GT/s PCIe x16, 24 GB/s
      port mlx5_0: dev 0, port 1, GPUDirect, 25 GB/s
links
  gpu 0 (0000:21:00.0) - gpu 1 (0000:41:00.0): 12 NVLinks, 240 GB/s
paths, and GB/s of their narrowest links
          gpu0     gpu1     mlx5_0  cpu0
  gpu0    X        NVL 240  PHB 24  PHB 24
  gpu1    NVL 240  X        PHB 24  PHB 24
  mlx5_0  PHB 24   PHB 24   X       PHB 24
  cpu0    PHB 24   PHB 24   PHB 24  X
NVL NVLink, NVB NVLink through a GPU, C2C NVLink-C2C, PIX one PCI switch at most, PXB several,
PXN through another GPU's NIC, PHB through a cpu, SYS between cpus, NET the network, - no way;
~ rests on something unknown
)");
    for (const auto& file : files_in("machines")) {
        INFO(file);
        CHECK(run({WEFT_COMMAND, "topology", "show", file}).status == 0);
    }
}

TEST_CASE("weft topology show --xml writes what it read, and says what it cannot", "[topology]") {
    const Folder made;
    const std::string file = made.path / "out.xml";
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--xml", file}).status == 0);
    const auto written = topology::read_topology(file_text(file));
    REQUIRE(written.ok());
    CHECK(written->graph == read_machine("dgx_h100").graph);
    const Outcome broken = run({WEFT_COMMAND, "topology", "show", folder + "broken/truncated.xml"});
    CHECK(broken.status == 1);
    CHECK(broken.output == "");
    CHECK(broken.error.find("truncated.xml: line 5, column 1: this is not XML") != std::string::npos);
    const Outcome missing = run({WEFT_COMMAND, "topology", "show", made.path / "none.xml"});
    CHECK(missing.status == 1);
    CHECK(missing.error.find("none.xml") != std::string::npos);
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--xml", made.path}).status == 1);
    CHECK(run({WEFT_COMMAND, "topology", "show"}).status == 2);
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--pxn"}).output.find("PXN 48") !=
          std::string::npos);
}
