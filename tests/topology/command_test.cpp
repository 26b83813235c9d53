// `weft topology show` and `search`: their output, their files and their exit status.
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tests/topology/machines.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static const std::string folder = std::string(WEFT_TOPOLOGY) + "/";

TEST_CASE("weft topology show prints the tree, the links and the paths of a machine", "[topology]") {
    const ProcessResult shown = run({WEFT_COMMAND, "topology", "show", folder + "machines/a100_bridge.xml"});
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
P2C C2C and a cpu's NIC, PXN through another GPU's NIC, PHB through a cpu, SYS between cpus, NET the network, - no way;
~ rests on something unknown
)");
    for (const auto& file : files_in("machines")) {
        INFO(file);
        CHECK(run({WEFT_COMMAND, "topology", "show", file}).status == 0);
    }
}

TEST_CASE("weft topology show --xml writes the file that it read, and names parts that it cannot", "[topology]") {
    const Folder made;
    const std::string file = made.path / "out.xml";
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--xml", file}).status == 0);
    const auto written = topology::read_topology(file_text(file));
    REQUIRE(written.ok());
    CHECK(written->graph == read_machine("dgx_h100").graph);
    const ProcessResult broken = run({WEFT_COMMAND, "topology", "show", folder + "broken/truncated.xml"});
    CHECK(broken.status == 1);
    CHECK(broken.output == "");
    CHECK(broken.error.find("truncated.xml: line 5, column 1: this is not XML") != std::string::npos);
    const ProcessResult missing = run({WEFT_COMMAND, "topology", "show", made.path / "none.xml"});
    CHECK(missing.status == 1);
    CHECK(missing.error.find("none.xml") != std::string::npos);
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--xml", made.path}).status == 1);
    CHECK(run({WEFT_COMMAND, "topology", "show", folder + "machines/dgx_h100.xml", "--pxn"}).output.find("PXN 48") !=
          std::string::npos);
}

TEST_CASE("weft topology show without a file shows this machine, merged with WEFT_TOPO_FILE", "[topology]") {
    const Folder made;
    const std::string dump = made.path / "dump.xml", file = made.path / "file.xml";
    const ProcessResult here = run({WEFT_COMMAND, "topology", "show"}, {"WEFT_TOPO_DUMP_FILE=" + dump});
    CHECK(here.status == 0);
    CHECK(here.output.find("host 0") == 0);
    const auto dumped = topology::read_topology(file_text(dump));
    REQUIRE(dumped.ok());
    CHECK(dumped->graph.hosts().size() == 1);
    std::ofstream(file) << R"(<system version="1"><cpu numaid="0"><pci busid="0f00:07:00.0" class="0x030200">
        <gpu dev="77" sm="90"/></pci></cpu></system>)";
    for (const char* variable : {"WEFT_TOPO_FILE=", "NCCL_TOPO_FILE="}) {
        const ProcessResult both = run({WEFT_COMMAND, "topology", "show"}, {variable + file});
        CHECK(both.status == 0);
        CHECK(both.output.find("gpu 77 (0f00:07:00.0): sm 90") != std::string::npos);
        CHECK(both.output.find("affinity") != std::string::npos);
    }
    const ProcessResult broken =
        run({WEFT_COMMAND, "topology", "show"}, {"WEFT_TOPO_FILE=" + folder + "broken/truncated.xml"});
    CHECK(broken.status == 1);
    CHECK_EXPECTED(PrintedError{broken.error}, "[topology.file] WEFT_TOPO_FILE, ");
    CHECK(run({WEFT_COMMAND, "topology", "show"}, {"WEFT_TOPO_FILE=/nowhere.xml"}).status == 1);
    const Folder stranger;
    const std::string other = stranger.path / "other.xml";
    std::ofstream(other) << "<system version=\"1\"><cpu numaid=\"0\" arch=\"ppc64\" affinity=\"f\"/></system>";
    CHECK(run({WEFT_COMMAND, "topology", "show"}, {"WEFT_TOPO_FILE=" + other})
              .error.find("the file is of another machine: arch of cpu 0 is ppc64, and here it is ") !=
          std::string::npos);
    const ProcessResult nowhere = run({WEFT_COMMAND, "topology", "show"}, {"WEFT_TOPO_DUMP_FILE=/nowhere/dump.xml"});
    CHECK(nowhere.status == 1);
    CHECK(nowhere.error.find("/nowhere/dump.xml could not be written") != std::string::npos);
}

TEST_CASE("weft topology show plays hwloc's machines, or says why it cannot", "[topology]") {
    const ProcessResult none =
        run({WEFT_COMMAND, "topology", "show", "--synthetic", "core:2 pu:1"}, {"WEFT_HWLOC_LIBRARY=none"});
    CHECK(none.status == 1);
    CHECK((none.error.find("WEFT_HWLOC_LIBRARY is none") != std::string::npos ||
           none.error.find("cannot use hwloc") != std::string::npos));
    CHECK(run({WEFT_COMMAND, "topology", "show", "--hwloc", folder + "hwloc/broken/truncated.xml"}).status == 1);
    CHECK(run({WEFT_COMMAND, "topology", "show", "--hwloc", "/nowhere"}).status == 1);
    CHECK(run({WEFT_COMMAND, "topology", "show", "--hwloc", "a", "--synthetic", "b"}).status == 2);
    const ProcessResult played = run({WEFT_COMMAND, "topology", "show", "--synthetic", "package:2 core:2 pu:1"});
    if (played.error.find("no hwloc") != std::string::npos ||
        played.error.find("cannot use hwloc") != std::string::npos)
        return;
    CHECK(played.status == 0);
    CHECK(played.output.find("4 cores") != std::string::npos);
    CHECK(run({WEFT_COMMAND, "topology", "show", "--hwloc", folder + "hwloc/two_sockets.xml"}).output.find("PIX") !=
          std::string::npos);
}

TEST_CASE("hwloc's files are accepted in the place of NCCL's, by their content", "[topology]") {
    const std::string file = folder + "hwloc/two_sockets.xml";
    const std::vector<std::string> show = {WEFT_COMMAND, "topology", "show"};
    const ProcessResult without = run({WEFT_COMMAND, "topology", "show", file}, {"WEFT_HWLOC_LIBRARY=none"});
    CHECK(without.status == 1);
    CHECK(without.error.find("two_sockets.xml: only hwloc can read this file of hwloc: ") != std::string::npos);
    CHECK(without.error.find("writes one that needs none") != std::string::npos);
    const ProcessResult refused = run(show, {"WEFT_TOPO_FILE=" + file, "WEFT_HWLOC_LIBRARY=none"});
    CHECK(refused.status == 1);
    CHECK(refused.error.find("two_sockets.xml: only hwloc can read this file of hwloc: ") != std::string::npos);
    for (const char* text : {"<topology version=\"2.0\">", "<!-- <system> --><topology version=\"1.0\"/>"}) {
        const Folder made;
        const std::string broken = made.path / "broken.xml";
        std::ofstream(broken) << text;
        const ProcessResult outcome = run({WEFT_COMMAND, "topology", "show", broken});
        CHECK(outcome.status == 1);
        CHECK(outcome.error.find("broken.xml: line ") != std::string::npos);
    }
    const ProcessResult played = run({WEFT_COMMAND, "topology", "show", "--hwloc", file});
    if (played.status != 0) return;  // no hwloc, as said above
    CHECK(run({WEFT_COMMAND, "topology", "show", file}).output == played.output);
    CHECK(run({WEFT_COMMAND, "topology", "search", file}).status == 0);
    // Merged: its devices are not here, which is said, and are kept.
    const ProcessResult both = run(show, {"WEFT_TOPO_FILE=" + file});
    CHECK(both.status == 0);
    CHECK(both.output.find("0000:03:00.0") != std::string::npos);
    CHECK(both.error.find("not detected") != std::string::npos);
}

TEST_CASE("weft topology search prints channels, their quality and their limit", "[topology]") {
    const std::string bridge = folder + "machines/a100_bridge.xml";
    const ProcessResult one = run({WEFT_COMMAND, "topology", "search", folder + "machines/pcie_4_gpus.xml"});
    CHECK(one.status == 0);
    CHECK(one.error == "");
    const size_t steps = one.output.find("search: ");
    REQUIRE(steps != std::string::npos);
    CHECK(one.output.substr(0, steps) == R"(4 ranks on 1 machine
rings: 1 channel of 6 GB/s each, 6 GB/s in all, SYS within a machine
   0: gpu0 gpu1 gpu2 gpu3
  the fullest link: from cpu 1 to gpu 3 (0000:af:00.0), 6 GB/s for 1 channel
trees: the same chains, 6 GB/s reduced and handed back
quality: 100.0 % of what these links can carry, 6 GB/s
bound by the links that join gpu 3 to the rest: pci of 6 GB/s from gpu 3 to cpu 1
)");
    const ProcessResult many = run({WEFT_COMMAND, "topology", "search", bridge, "--hosts", "4096"});
    CHECK(many.status == 0);
    CHECK(many.output.find("8192 ranks on 4096 machines\nrings: 1 channel of 24 GB/s each") == 0);
    CHECK(run({WEFT_COMMAND, "topology", "search", folder + "machines/dgx_h100.xml", "--gpus", "0,2", "--all-links"})
              .output.find("2 ranks on 1 machine\n") == 0);
    CHECK(run({WEFT_COMMAND, "topology", "search", folder + "machines/dgx_h100.xml", "--hosts", "2", "--rails", "only"})
              .output.find("PXN to NICs, in and out by the same NIC") != std::string::npos);
    for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--hosts", "0"},
                                                  {"--gpus", "9"},
                                                  {"--gpus", ""},
                                                  {"--gpus", "0,,1"},
                                                  {"--gpus", "0,0"},
                                                  {"--gpus", "0,"},
                                                  {"--rails", "some"},
                                                  {"--xml", "/none/of/this"}}) {
        std::vector<std::string> words{WEFT_COMMAND, "topology", "search", bridge};
        words.insert(words.end(), wrong.begin(), wrong.end());
        const ProcessResult refused = run(words);
        INFO(refused.error);
        CHECK(refused.status != 0);
        CHECK(refused.error != "");
    }
}

TEST_CASE("sources of machines that are given, but empty, are refused", "[topology]") {
    for (const char* command : {"show", "search"})
        for (const std::vector<std::string>& words :
             {std::vector<std::string>{"--hwloc", ""}, {"--synthetic", ""}, {""}}) {
            std::vector<std::string> all{WEFT_COMMAND, "topology", command};
            all.insert(all.end(), words.begin(), words.end());
            const ProcessResult refused = run(all);
            INFO(command << ' ' << words[0] << refused.error);
            CHECK(refused.status == 2);
            CHECK(refused.error.find("given, but empty") != std::string::npos);
            CHECK(refused.output == "");
        }
}

TEST_CASE("a machine without a cpu is neither shown nor drawn, nor searched", "[topology]") {
    const Folder made;
    const std::string file = made.path / "none.xml", picture = made.path / "none.svg";
    std::ofstream(file) << "<system version=\"1\"/>";
    for (const char* command : {"show", "search"}) {
        const ProcessResult refused = run({WEFT_COMMAND, "topology", command, file, "--svg", picture});
        CHECK(refused.status == 2);
        CHECK(refused.output == "");
        CHECK_EXPECTED(PrintedError{refused.error},
                       (command == std::string("show") ? "[topology.invalid] weft topology: "
                                                       : "[topology.placement] weft topology: ") +
                           file + ": ");
        CHECK(!std::filesystem::exists(picture));
    }
}

TEST_CASE("weft topology search --graph holds a graph file against the machine", "[topology]") {
    const Folder made;
    const std::string file = made.path / "graph.xml", mesh = folder + "machines/dgx1_v100.xml";
    CHECK(run({WEFT_COMMAND, "topology", "search", mesh, "--xml", file}).status == 0);
    const ProcessResult fits = run({WEFT_COMMAND, "topology", "search", mesh, "--graph", file});
    CHECK(fits.status == 0);
    CHECK(fits.output == file + " fits " + mesh + "\n");
    const ProcessResult other =
        run({WEFT_COMMAND, "topology", "search", folder + "machines/pcie_4_gpus.xml", "--graph", file});
    CHECK(other.status == 1);
    CHECK(other.output.find("passes gpu 4, which the machine does not have") != std::string::npos);
    CHECK_ERROR(PrintedError{other.error}, "command.input");
    CHECK(run({WEFT_COMMAND, "topology", "search", mesh, "--graph", mesh}).error.find("this is not a graph file") !=
          std::string::npos);
}
