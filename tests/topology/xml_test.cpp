// NCCL's topology files: a file that is read is written as it was. Wrong files are refused with the place and the
// reason; strange content is reported and survived.
#include <random>

#include "src/base/file.hpp"
#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/topology/machines.hpp"
#include "topology/files/graph_xml.hpp"
#include "topology/search/search.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

// One cpu with this in it.
ReadTopology read_in_cpu(const std::string& text) {
    auto read = read_topology("<system version=\"1\">\n<cpu numaid=\"0\">\n" + text + "\n</cpu>\n</system>\n");
    INFO(read.status().sentence());
    REQUIRE(read.ok());
    return std::move(*read);
}

}  // namespace

TEST_CASE("a topology that is written and read again is the same", "[topology]") {
    CHECK(files_in("machines").size() >= 9);
    for (const auto& file : files_in("machines")) {
        INFO(file);
        const auto first = read_topology(file_text(file));
        REQUIRE(first.ok());
        const std::string written = write_topology(first->graph);
        const auto second = read_topology(written);
        INFO(written);
        INFO(second.status().sentence());
        REQUIRE(second.ok());
        CHECK(second->graph == first->graph);
        CHECK(second->notes.empty());
        CHECK(write_topology(second->graph) == written);
    }
}

TEST_CASE("users' texts are escaped", "[topology]") {
    Graph graph;
    REQUIRE(graph.host("a \"b\" <c> & d\n").ok());
    Node cpu;
    cpu.kind = NodeKind::cpu;
    cpu.cpu.numaid = 0;
    REQUIRE(graph.add(cpu).ok());
    const auto read = read_topology(write_topology(graph));
    REQUIRE(read.ok());
    CHECK(read->graph.hosts() == graph.hosts());
}

TEST_CASE("a broken topology file is refused with line and reason", "[topology]") {
    CHECK(files_in("broken").size() >= 27);
    for (const auto& file : files_in("broken")) {
        const std::string text = file_text(file);
        const std::string start = "<!-- expect: ";
        REQUIRE(text.substr(0, start.size()) == start);
        const std::string expected = text.substr(start.size(), text.find(" -->") - start.size());
        const auto read = read_topology(text);
        INFO(file.filename() << ": " << (read ? "it was read" : read.status().sentence()));
        REQUIRE(!read.ok());
        CHECK_EXPECTED(read, expected);
        CHECK(read.status().sentence().substr(0, 5) == "line ");
    }
}

TEST_CASE("anomalies are noted with their line, and ignored or interpreted", "[topology]") {
    const auto machine = read_in_cpu(R"(<pci busid="0000:01:00.0" class="0x030200" link_speed="fast" link_width="0">
  <gpu dev="0" sm="80"><nvlink target="0000:99:00.0" count="4" tclass="0x030200"/></gpu>
</pci>
<pci busid="0000:02:00.0" class="0x030200" link_width="255"><gpu dev="1" sm="80">
  <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/>
</gpu></pci>
<pci busid="0000:03:00.0" class="0x030200"><gpu dev="2" sm="80">
  <nvlink target="0000:02:00.0" count="2" tclass="0x030200"/>
  <nvlink target="0000:04:00.0" count="2" tclass="0x030200"/>
</gpu></pci>
<pci busid="0000:04:00.0" class="0x030200"/>
<pci busid="0000:05:00.0"><pcilink target="0000:77:00.0"/></pci>
<future><pci/></future>)");
    for (const char* affinity : {"0-3", "0xff", "f,", "123456789", "ffff,zz"}) {
        const auto strange = read_topology(fmt::format(
            "<system version=\"1\">\n<cpu numaid=\"0\" affinity=\"{}\" arch=\"x86_64\"/></system>", affinity));
        REQUIRE(strange.ok());
        CHECK(strange->notes ==
              std::vector<std::string>{fmt::format(
                  "line 2: affinity of cpu 0 is `{}`: taken for unknown; write it as in ffff,ffffffff", affinity)});
        CHECK(strange->graph.node(0).cpu.affinity == "");
    }
    for (const char* affinity : {"f", "00000000,000000ff", "0", ""})
        CHECK(read_topology(fmt::format("<system version=\"1\"><cpu numaid=\"0\" affinity=\"{}\"/></system>", affinity))
                  ->notes.empty());
    CHECK(
        machine.notes ==
        std::vector<std::string>{
            "line 3: link_speed of 0000:01:00.0 is `fast`: taken for unknown; write it as in 16.0 GT/s PCIe",
            "line 3: link_width of 0000:01:00.0 is 0: taken for unknown",
            "line 6: link_width of 0000:02:00.0 is 255: taken for unknown",
            "line 15: <`future`> is not known and is skipped",
            "line 4: the nvlink of gpu 0 (0000:01:00.0) leads to 0000:99:00.0, which is not a GPU of the host: it "
            "is ignored; correct its target, or add the GPU",
            "line 14: the pcilink of pci 0000:05:00.0 leads to 0000:77:00.0, which is not a PCI switch of the host: it "
            "is ignored; correct its target, or add the switch",
            "line 7: gpu 1 (0000:02:00.0) states 4 nvlinks to gpu 2 (0000:03:00.0), which states 2: the lesser "
            "number is taken",
            "line 11: gpu 2 (0000:03:00.0) states an nvlink to gpu 0000:04:00.0, which does not state it: taken for "
            "both ways; each of the two should state it"});
    const Path path =
        Paths(machine.graph).between(node_named(machine.graph, "gpu1"), node_named(machine.graph, "gpu2"));
    CHECK(path.path_class == PathClass::nvl);
    CHECK(path.bandwidth_gbs == 40);
}

TEST_CASE("a GPU that is divided keeps its parts, each with an index of its own", "[topology]") {
    const std::string file = R"(<system version="1"><cpu numaid="0"><pci busid="0000:07:00.0" class="0x030200">
        <gpu dev="0" sm="80" rank="0" keep="1"/>
        <gpu dev="1" sm="80" rank="{}"/></pci></cpu></system>)";
    const auto divided = read_topology(fmt::format(fmt::runtime(file), 1));
    REQUIRE(divided.ok());
    CHECK(divided->notes ==
          std::vector<std::string>{"line 3: 0000:07:00.0 has several <gpu>: paths and channels treat it as one GPU"});
    REQUIRE(divided->graph.node(1).parts.size() == 1);
    CHECK(divided->graph.node(1).parts[0].dev == 1);
    const auto again = read_topology(write_topology(divided->graph));
    REQUIRE(again.ok());
    CHECK(again->graph == divided->graph);
    CHECK_EXPECTED(read_topology(fmt::format(fmt::runtime(file), 0)),
                   "[topology.invalid] line 1: two gpus have rank 0");
}

TEST_CASE("an NVLink to a cpu that a virtual machine hides is one to the cpu", "[topology]") {
    const auto read = read_topology(R"(<system version="1"><cpu numaid="0"><pci busid="0000:07:00.0" class="0x030200">
        <gpu dev="0" sm="70"><nvlink target="fffffff:ffff:ff" count="3" tclass="0x068001"/></gpu></pci></cpu></system>)");
    REQUIRE(read.ok());
    CHECK(read->notes.empty());
    CHECK(Paths(read->graph).between(0, 1).path_class == PathClass::nvl);
}

TEST_CASE("halves of a switch that a pcilink joins are several switches, without a cpu", "[topology]") {
    const auto machine = read_in_cpu(R"(
<pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
  <pcilink target="0000:02:00.0"/>
  <pci busid="0000:03:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16"><gpu dev="0" sm="80"/></pci>
</pci>
<pci busid="0000:02:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
  <pcilink target="0000:01:00.0"/>
  <pci busid="0000:04:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="8"><gpu dev="1" sm="80"/></pci>
</pci>)");
    CHECK(machine.notes.empty());
    const Path path =
        Paths(machine.graph).between(node_named(machine.graph, "gpu0"), node_named(machine.graph, "gpu1"));
    CHECK(path.path_class == PathClass::pxb);
    CHECK(path.bandwidth_gbs == 12);
    CHECK(path.hops == 3);
}

TEST_CASE("the display of a console is no GPU", "[topology]") {
    const auto machine = read_in_cpu(R"(
<pci busid="0000:01:00.0" class="0x030000" vendor="0x1a03"/>
<pci busid="0000:02:00.0" class="0x030000" vendor="0x10de"/>
<pci busid="0000:03:00.0" class="0x030200"/>
<pci busid="0000:04:00.0" class="0x108000"/>)");
    CHECK(machine.graph.of_kind(NodeKind::gpu) == std::vector<int>{2, 3});
}

TEST_CASE("bus ids are the same in all the forms that tools write", "[topology]") {
    CHECK(normal_busid("0000:C1:00.0") == "0000:c1:00.0");
    CHECK(normal_busid("00000000:C1:00.0") == "0000:c1:00.0");
    CHECK(normal_busid("00010000:01:00.0") == "10000:01:00.0");
    CHECK(normal_busid("ffff:ff:01.0") == "ffff:ff:01.0");
    for (const char* wrong : {"", "c1:00.0", "0000:c1:00", "0000:c1:00.0x", "0000:c1:00.00", "000000000:c1:00.0",
                              "0000.c1.00.0", "0000:g1:00.0", "0000:c1:00.0 "})
        CHECK(normal_busid(wrong).empty());
}

TEST_CASE("channels that are written and read again are the same", "[topology]") {
    std::vector<ChannelGraph> graphs(2);
    graphs[0].pattern = Pattern::ring;
    graphs[0].intra_gbs = 20.6;
    graphs[0].inter_gbs = 48;
    graphs[0].type_intra = PathClass::nvl;
    graphs[0].type_inter = PathClass::pix;
    graphs[0].cross_nic = 2;
    graphs[0].channels = {
        {{{NodeKind::port, 0, unknown}, {NodeKind::gpu, 0, 3}, {NodeKind::gpu, 1, 4}, {NodeKind::port, 1, unknown}}},
        {{{NodeKind::gpu, 1, 4}, {NodeKind::gpu, 0, 3}}}};
    graphs[1].id = 1;
    graphs[1].pattern = Pattern::balanced_tree;
    graphs[1].type_inter = PathClass::p2c;
    graphs[1].latency_inter_us = 2.5;
    graphs[1].same_channels = false;
    const std::string written = write_graphs(graphs);
    const auto read = read_graphs(written);
    INFO(written);
    INFO(read.status().sentence());
    REQUIRE(read.ok());
    CHECK(read->notes.empty());
    CHECK(read->graphs == graphs);
}

TEST_CASE("a graph file of NCCL's is read, and a wrong one refused with the reason", "[topology]") {
    const auto read = read_graphs(R"(<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="2" speedintra="20" speedinter="20" latencyinter="0" typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel><net dev="0x100000000000002"/><gpu dev="0"/><gpu dev="1"/><net dev="2"/></channel>
  </graph>
  <extra><more/></extra>
</graphs>)");
    REQUIRE(read.ok());
    REQUIRE(read->graphs.size() == 1);
    CHECK(read->graphs[0].channels[0].stops[0] == Stop{NodeKind::port, 2, unknown, 1});
    CHECK(read->notes == std::vector<std::string>{"line 2: nchannels of graph 0 is 2, but it has 1: these are taken",
                                                  "line 5: <`extra`> is not known and is skipped"});
    const auto check_refused = [](const std::string& text, const std::string& part) {
        INFO(text);
        CHECK_EXPECTED(read_graphs(text), "[file.syntax] " + part);
    };
    const std::string ring = R"(<graphs version="1"><graph id="0" pattern="4">)";
    check_refused("<system/>", "line 1, column 1: expected <graphs>, found <`system`>: this is not a graph file");
    check_refused(R"(<graphs version="7"/>)", "line 1, column 1: version of <graphs> is 7; Weft reads version 1");
    check_refused(R"(<graphs><graph id="0" pattern="9"/></graphs>)",
                  "line 1, column 9: pattern of <graph> is `9`; it must lie in 1..6");
    check_refused(R"(<graphs><graph id="0" pattern="4" speedintra="-1"/></graphs>)",
                  "line 1, column 9: speedintra of <graph> is `-1`; it must lie in 0..1000000");
    check_refused(R"(<graphs><graph id="0" pattern="4" speedintra="nan"/></graphs>)", "must lie in");
    check_refused(R"(<graphs><graph id="0" pattern="4" typeintra="FAR"/></graphs>)", "there are LOC, NVL");
    check_refused(ring + R"(</graph><graph id="0" pattern="4"/></graphs>)", "graph 0 appears twice");
    check_refused(ring + R"(<channel><gpu dev="3"/><gpu dev="3"/></channel></graph></graphs>)",
                  "gpu 3 appears twice in this channel; a ring passes each gpu once");
    check_refused(ring + R"(<channel><nic dev="3"/></channel></graph></graphs>)",
                  "a channel holds <gpu>, <cpu> and <net>, found <`nic`>");
    check_refused(ring + R"(<channel><gpu dev="-1"/></channel></graph></graphs>)", "must lie in 0..65535");
    check_refused(ring + "<channel>", "is the file complete?");
}

TEST_CASE("files with random faults end in a graph that can be written and searched, or in a sentence", "[topology]") {
    INFO("seed " << seed());
    std::mt19937 random(seed());
    const auto draw = [&](size_t below) { return size_t(random() % below); };
    const std::string letters = "\"<>/=0123456789abcdef:.- x&";
    auto files = files_in("machines");
    for (const auto& file : files_in("foreign")) files.push_back(file);
    for (const auto& file : files) {
        const std::string right = file_text(file);
        for (int round = 0; round < 40; ++round) {
            std::string text = right;
            for (size_t fault = 0; fault <= draw(4); ++fault) {
                const size_t place = draw(text.size());
                switch (draw(4)) {
                    case 0: text[place] = letters[draw(letters.size())]; break;
                    case 1: text.erase(place, 1 + draw(40)); break;
                    case 2: text.insert(place, text.substr(draw(text.size()), 1 + draw(200))); break;
                    case 3: {  // a number or a word of another place
                        const size_t from = text.find('"', place), to = text.find('"', draw(text.size()));
                        if (from != text.npos && to != text.npos) text.replace(from, draw(14), text.substr(to, 14));
                        break;
                    }
                }
            }
            const auto read = read_topology(text);
            if (!read) {
                CHECK(read.status().sentence().substr(0, 5) == "line ");
                continue;
            }
            const auto again = read_topology(write_topology(read->graph));
            INFO(text);
            REQUIRE(again.ok());
            CHECK(again->graph == read->graph);
            const Paths paths(read->graph);
            for (size_t i = 0; i < read->graph.nodes().size(); i += 5) (void)paths.from(int(i));
            if (const auto job = job_of_all(read->graph, 1 + int(draw(3)))) (void)search(*job, {.steps_most = 100'000});
        }
    }
}
