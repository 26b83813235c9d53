// Files of others: NCCL's, RCCL's and hwloc's as people have them, which are read, and the graphs that follow.
#include "src/drivers/hwloc/hwloc.hpp"
#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"
#include "topology/description.hpp"
#include "topology/detect/discover.hpp"
#include "topology/fabric/simulated_hosts.hpp"
#include "topology/files/merge.hpp"
#include "topology/search/channel_check.hpp"
#include "topology/search/search.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

std::string text_of(const std::string& name) { return file_text(std::string(WEFT_TOPOLOGY) + "/foreign/" + name); }

ReadTopology read_text(const std::string& text) {
    auto read = read_topology(text);
    INFO(read.status().sentence());
    REQUIRE(read.ok());
    const auto again = read_topology(write_topology(read->graph));
    REQUIRE(again.ok());
    CHECK(again->graph == read->graph);
    return std::move(*read);
}

ReadTopology read_foreign(const std::string& name) { return read_text(text_of(name)); }

ReadTopology read_in_cpu(const std::string& text, const std::string& facts = "") {
    return read_text("<system version=\"1\"><cpu numaid=\"0\" " + facts + ">" + text + "</cpu></system>");
}

double nvlinks_gbs(const Graph& graph, int gpu) {
    double gbs = 0;
    for (const Link& link : graph.links())
        if (link.kind == LinkKind::nvlink && (link.source == gpu || link.target == gpu)) gbs += link.bandwidth_gbs;
    return gbs;
}

Channels searched(const Graph& graph, int hosts, RailUse rails = RailUse::best) {
    const auto job = job_of_all(graph, hosts);
    REQUIRE(job.ok());
    SearchOptions options;
    options.rails = rails;
    auto found = search(*job, options);
    INFO(found.status().sentence());
    REQUIRE(found.ok());
    return std::move(*found);
}

std::vector<std::string> objections(const std::string& graphs, const Graph& graph, int hosts = 1) {
    const auto read = read_graphs(graphs);
    INFO(read.status().sentence());
    REQUIRE(read.ok());
    const auto job = job_of_all(graph, hosts);
    REQUIRE(job.ok());
    std::vector<std::string> all;
    for (const ChannelGraph& channels : read->graphs) {
        const auto found = check_channels(channels, *job);
        REQUIRE(found.ok());
        all.insert(all.end(), found->begin(), found->end());
    }
    return all;
}

}  // namespace

TEST_CASE("a link of a device to itself is ignored with a note", "[topology][foreign]") {
    const ReadTopology read = read_foreign("link_to_itself.xml");
    CHECK(read.notes.size() == 1);
    CHECK(nvlinks_gbs(read.graph, node_named(read.graph, "gpu0")) == 0);
    CHECK(searched(read.graph, 1).found_gbs == 24);
    const ReadTopology pci =
        read_in_cpu("<pci busid=\"0000:03:00.0\" class=\"0x060400\"><pcilink target=\"0000:03:00.0\"/></pci>");
    CHECK(pci.notes.size() == 1);
    CHECK(pci.graph.links().size() == 1);
}

TEST_CASE("a port that stands under several cpus is one", "[topology][foreign]") {
    const ReadTopology read = read_foreign("net_under_each_cpu.xml");
    CHECK(read.notes.size() == 1);
    CHECK(read.graph.of_kind(NodeKind::port).size() == 1);
    CHECK(read.graph.of_kind(NodeKind::nic).size() == 1);
    CHECK(searched(read.graph, 2).found_gbs == 1.25);
    struct Row {
        const char* nets;
        size_t ports;
    };
    const Row rows[] = {
        {R"(<net name="a" dev="0"/><net name="a" dev="0"/>)", 1},
        {R"(<net name="a" dev="0" guid="0x1"/><net name="a" dev="0"/>)", 1},
        {R"(<net name="a"/><net name="a"/>)", 1},
        {R"(<net name="a" dev="0" guid="0x1"/><net name="a" dev="0" guid="0x2"/>)", 2},
        {R"(<net name="a" port="1"/><net name="a" port="2"/>)", 2},
        {R"(<net name="a" dev="0"/><net name="b" dev="1"/>)", 2},
        {R"(<net name="a" dev="0"/><net name="b" dev="0"/>)", 2},  // an index that two share
        {R"(<net speed="1000"/><net speed="1000"/>)", 2},          // nothing tells whether they are one
    };
    for (const Row& row : rows) {
        INFO(row.nets);
        CHECK(read_in_cpu(fmt::format("<nic>{}</nic>", row.nets)).graph.of_kind(NodeKind::port).size() == row.ports);
    }
    CHECK(read_in_cpu("<nic/>").graph.nodes().size() == 1);
}

TEST_CASE("GPUs that share a dev are distinguished, and the parts of one count its links once", "[topology][foreign]") {
    const ReadTopology parts = read_foreign("mlopart.xml");
    REQUIRE(parts.graph.of_kind(NodeKind::gpu).size() == 2);
    for (const int gpu : parts.graph.of_kind(NodeKind::gpu)) {
        CHECK(nvlinks_gbs(parts.graph, gpu) == Approx(18 * 40.1));
        REQUIRE(parts.graph.node(gpu).parts.size() == 1);
        CHECK(parts.graph.node(gpu).parts[0].mlopart == 1);
    }
    // Each part is a stop.
    const std::string ring = R"(<graphs version="1"><graph id="0" pattern="4" nchannels="1" speedintra="40"
        speedinter="40" typeintra="NVL" typeinter="PIX" samechannels="1"><channel><gpu dev="0x0" rank="0"/>
        <gpu dev="0x0" rank="1"/><gpu dev="0x1" rank="2"/><gpu dev="0x1" rank="3"/></channel></graph></graphs>)";
    CHECK(objections(ring, parts.graph).empty());
    // Links that only the second part states count, too.
    const ReadTopology second = read_in_cpu(R"(<pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="80"/>
        <gpu dev="0" sm="80"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="80">
            <nvlink target="0000:01:00.0" count="4" tclass="0x030200"/></gpu></pci>)");
    CHECK(nvlinks_gbs(second.graph, node_named(second.graph, "gpu0")) == 80);
    // GPUs of processes that each counted alone.
    const ReadTopology alone = read_in_cpu(R"(
        <pci busid="0000:01:00.0" class="0x030200"><gpu dev="0" sm="80" rank="0"/></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" sm="80" rank="1"/></pci>
        <pci busid="0000:03:00.0" class="0x030200"><gpu dev="1" sm="80" rank="2"/></pci>)");
    CHECK(alone.notes.size() == 1);
    CHECK(alone.graph.of_kind(NodeKind::gpu).size() == 3);
    const Channels found = searched(alone.graph, 1);
    CHECK(found.ranks == 3);
    const std::string written = write_graphs(found.kinds[0].graphs);
    INFO(written);
    CHECK(objections(written, alone.graph).empty());
    const std::string by_rank = R"(<graphs version="1"><graph id="0" pattern="4" nchannels="1" speedintra="12"
        speedinter="12" typeintra="PHB" typeinter="PIX"><channel><gpu dev="0" rank="1"/><gpu dev="0" rank="0"/>
        <gpu dev="1" rank="2"/></channel></graph></graphs>)";
    CHECK(objections(by_rank, alone.graph).empty());
}

TEST_CASE("hosts of one file are of one NVLink domain, as in NCCL", "[topology][foreign]") {
    const ReadTopology read = read_foreign("two_hosts.xml");
    CHECK(read.notes.empty());
    const Path path = Paths(read.graph).between(node_named(read.graph, "gpu0", 0), node_named(read.graph, "gpu1", 1));
    CHECK(path.path_class == PathClass::nvl);
    CHECK(path.bandwidth_gbs == Approx(18 * 40.1));
    const Channels found = searched(read.graph, 1);
    CHECK(found.ranks == 4);
    CHECK(found.machines.size() == 1);
    CHECK(objections(text_of("two_hosts.graph"), read.graph).empty());
    // Each host states the common domain, and a switch of its own.
    CHECK(!shared_domain(read.graph, 0).empty());
    CHECK(shared_domain(read.graph, 0) == shared_domain(read.graph, 1));
    const auto played = simulate_hosts(read.graph, 1, 4);
    REQUIRE(played.ok());
    CHECK(played->domains == std::vector<int32_t>{0, 0});
    CHECK(played->graphs.size() == 1);
    // GPUs without switches are not joined.
    std::string text = text_of("two_hosts.xml");
    for (size_t at = text.find("<nvlink"); at != text.npos; at = text.find("<nvlink"))
        text.erase(at, text.find("/>", at) + 2 - at);
    CHECK(searched(read_text(text).graph, 1).machines.size() == 2);
}

TEST_CASE("NCCL's trees carry each hop once, and graphs that it did not find fit", "[topology][foreign]") {
    const Graph graph = read_machine("dgx_h100").graph;
    // 8 of 46 GB/s: all that NVLinks carry, each way, though a tree uses each hop both ways.
    const auto file = [](int pattern, const char* ends, double inter, double intra) {
        std::string text = fmt::format(R"(<graphs version="1"><graph id="1" pattern="{}" crossnic="0" nchannels="8"
            speedintra="{}" speedinter="{}" typeintra="NVL" typeinter="PIX" samechannels="0">)",
                                       pattern, intra, inter);
        for (int channel = 0; channel < 8; ++channel) {
            const std::string net = *ends ? fmt::format("<net dev=\"{}\"/>", channel) : "";
            text += "<channel>" + net;
            for (int gpu = 0; gpu < 8; ++gpu) text += fmt::format("<gpu dev=\"{:#x}\"/>", (channel + gpu) % 8);
            text += net + "</channel>";
        }
        return text +
               "</graph><graph id=\"2\" pattern=\"3\" nchannels=\"0\" speedintra=\"0\" speedinter=\"0\"/>"
               "<graph id=\"3\" pattern=\"5\" nchannels=\"0\"/></graphs>";
    };
    for (const int pattern : {1, 2, 3}) {
        INFO(pattern);
        CHECK(objections(file(pattern, "", 0, 46), graph).empty());
        CHECK(!objections(file(pattern, "", 0, 60), graph).empty());
        CHECK(objections(file(pattern, "net", 24, 46), graph, 2).empty());
        CHECK(!objections(file(pattern, "net", 60, 46), graph, 2).empty());  // the NICs' PCI links carry 48
    }
    // Rings are wider within a machine than between.
    CHECK(objections(file(4, "net", 40, 46), graph, 2).empty());
    CHECK(!objections(file(4, "net", 60, 40), graph, 2).empty());
}

TEST_CASE("channels take the form of rails that carries more, in few steps", "[topology][foreign]") {
    const Graph graph = read_foreign("rails.xml").graph;
    for (const int hosts : {2, 3}) {
        const Channels found = searched(graph, hosts);
        CHECK(found.found_gbs == Approx(10));
        CHECK(found.steps < 10'000'000);
    }
    // A channel that ends where it began passes the sockets' link both ways.
    const Channels kept = searched(graph, 2, RailUse::only);
    CHECK(kept.found_gbs == Approx(6));
    CHECK(kept.steps < 20'000'000);
}

TEST_CASE("RCCL's files are read, with the bandwidth of XGMI links", "[topology][foreign]") {
    const ReadTopology read = read_foreign("rccl.xml");
    CHECK(read.notes.empty());
    const int gpu = node_named(read.graph, "gpu0");
    CHECK(nvlinks_gbs(read.graph, gpu) == 48);
    CHECK(Paths(read.graph).between(gpu, node_named(read.graph, "gpu1")).path_class == PathClass::nvl);
    const std::string written = write_topology(read.graph);
    CHECK(written.find("<system version=\"2\">") != std::string::npos);
    CHECK(written.find("<xgmi") != std::string::npos);
}

TEST_CASE("a console's display is no GPU", "[topology][foreign]") {
    struct Row {
        const char* facts;
        size_t gpus;
    };
    const Row rows[] = {{R"(class="0x030000" vendor="0x1a03")", 0},
                        {R"(class="0x030000" vendor="0x102b")", 0},
                        {R"(class="0x030000" vendor="0x1A03")", 0},
                        {R"(class="0x0300" vendor="0x1a03")", 0},
                        {R"(class="0x030000")", 0},  // clouds' files do not name makers
                        {R"(class="0x030000" vendor="")", 0},
                        {R"(class="0x030000" vendor="0x1002" device="0x515e")", 0},
                        {R"(class="0x030000" vendor="0x1002" device="0x73bf")", 1},
                        {R"(class="0x030000" vendor="0x10DE")", 1},
                        {R"(class="0x030200")", 1},
                        {R"(class="0x030200" vendor="0x1a03")", 1}};
    const auto graph_of = [](const std::string& facts) {
        return read_in_cpu("<pci busid=\"0000:01:00.0\" " + facts + "/>").graph;
    };
    for (const Row& row : rows) {
        INFO(row.facts);
        CHECK(graph_of(row.facts).of_kind(NodeKind::gpu).size() == row.gpus);
    }
    // The maker is known by detection.
    const auto gpus = [&](const char* file, const char* detected) {
        const auto both = merge(graph_of(file), graph_of(detected));
        REQUIRE(both.ok());
        return both->graph.of_kind(NodeKind::gpu).size();
    };
    CHECK(gpus(R"(class="0x030000")", R"(class="0x030000" vendor="0x1a03")") == 0);
    CHECK(gpus(R"(class="0x038000")", R"(class="0x038000" vendor="0x1a03")") == 0);
    CHECK(gpus(R"(class="0x030000")", R"(class="0x030000" vendor="0x10de")") == 1);
    CHECK(gpus(R"(class="0x030200")", R"(class="0x030200")") == 1);
    // A <gpu> is believed.
    CHECK(read_in_cpu(R"(<pci busid="0000:01:00.0" class="0x030000"><gpu dev="0"/></pci>)")
              .graph.of_kind(NodeKind::gpu)
              .size() == 1);
}

TEST_CASE("a file that only NCCL's variable names is left aside if it does not fit", "[topology][foreign]") {
    const std::string folder = WEFT_TOPOLOGY;
    const auto found = [](const std::string& file, bool is_alias, const std::string& dump = "") {
        Options options;
        options.topo_file = file;
        options.topo_dump_file = dump;
        for (const OptionIndex option : {OptionIndex::topo_file, OptionIndex::topo_dump_file})
            options.origins[int(option)] = is_alias ? Origin::alias : Origin::environment;
        if (is_alias) options.variables[int(OptionIndex::topo_file)] = "NCCL_TOPO_FILE";
        return discover_this_host(options, {.nvml = false, .verbs = false});
    };
    const auto here = found("", false);
    REQUIRE(here.ok());
    // Cut, of another version, of several hosts; not there.
    for (const std::string& file : {folder + "/broken/truncated.xml", folder + "/broken/another_version.xml",
                                    folder + "/foreign/two_hosts.xml", std::string("/nonexistent")}) {
        INFO(file);
        const auto left = found(file, true);
        REQUIRE(left.ok());
        CHECK(left->left_aside.starts_with("NCCL_TOPO_FILE"));
        CHECK(left->graph == here->graph);
    }
    CHECK(found(folder + "/broken/truncated.xml", false).status().code() == weftInvalidUsage);
    CHECK(!found("/nonexistent", false).ok());
    // Another machine's processors: of Weft's variable a warning.
    const std::string other = folder + "/machines/gb200_nvl72_slice.xml";
    CHECK(found(folder + "/machines/grace_hopper.xml", true)->left_aside.empty() ==
          found(folder + "/machines/grace_hopper.xml", false)->foreign.empty());
    CHECK(found(other, false).ok());
    CHECK(found("", true, "/nonexistent/dump.xml").ok());
    CHECK(!found("", false, "/nonexistent/dump.xml").ok());
}

TEST_CASE("a file fits if it is of one host, whose GPUs are here if any are", "[topology][foreign]") {
    const auto graph_of = [](const std::string& busid, const char* hash = "") {
        const std::string pci = "<pci busid=\"" + busid + "\" class=\"0x030200\"/>";
        return read_in_cpu(busid.empty() ? "" : pci, fmt::format("host_hash=\"{}\"", hash)).graph;
    };
    const auto fits = [](const Graph& file, const Graph& detected) {
        const auto both = merge(file, detected);
        REQUIRE(both.ok());
        return both->misfit.empty();
    };
    const Graph here = graph_of("0000:07:00.0", "0x1"), processors = graph_of("", "0x1");
    CHECK(fits(here, here));
    CHECK(fits(graph_of("00000000:07:00.0", "0x2"), here));
    CHECK(fits(processors, here));
    CHECK(fits(here, processors));
    CHECK(!fits(graph_of("0000:08:00.0"), here));
    CHECK(fits(graph_of("0000:08:00.0"), processors));
    CHECK(!fits(read_foreign("two_hosts.xml").graph, here));
    CHECK(!fits(read_in_cpu("", "arch=\"arm64\"").graph, read_in_cpu("", "arch=\"x86_64\"").graph));
}

TEST_CASE("empty texts are unknown", "[topology][foreign]") {
    const ReadTopology read = read_in_cpu(
        R"(<pci busid="0000:01:00.0" class="" vendor="" link_speed="" link_width=""><gpu dev="" sm="" rank="" gdr="">
            <nvlink target="0000:02:00.0" count="" tclass=""/></gpu></pci>
        <pci busid="0000:02:00.0" class="0x030200"><gpu dev="1" sm="80"><nvlink target="0000:01:00.0"/></gpu></pci>
        <nic><net name="" dev="" speed="" port="" guid="" latency="" maxconn="" gdr="" coll="" keep=""/></nic>)",
        R"(affinity="" arch="" vendor="" familyid="" modelid="" host_hash="")");
    CHECK(read.notes.empty());
    CHECK(read.graph.of_kind(NodeKind::gpu).size() == 2);
    CHECK(nvlinks_gbs(read.graph, node_named(read.graph, "gpu1")) == 20);
}

TEST_CASE("NCCL's files may have comments, instructions and a document type before them", "[topology][foreign]") {
    const std::string system = "<system version=\"1\"><cpu numaid=\"0\"/></system>";
    for (const char* before : {"<!-- <topology> -->\n", "\xef\xbb\xbf", "<?xml version=\"1.0\"?>\n<?pi <topology?>\n",
                               "\n\n  ", "<!DOCTYPE system SYSTEM \"nccl.dtd\">\n",
                               "<?xml version=\"1.0\"?><!-- a -->\n<!DOCTYPE system>\n<!-- b -->"}) {
        INFO(before);
        const auto found = discover_file("none", before + system);
        INFO(found.status().sentence());
        REQUIRE(found.ok());
        CHECK(found->graph.nodes().size() == 1);
    }
}

TEST_CASE("hwloc's files may have anything that XML allows", "[topology][foreign]") {
    // Of other versions it is said how to convert them, with and without the library.
    for (const char* version : {"", "version=\"1.11\"", "version=\"3.0\"", "version=\"\"", "version=\"20\""}) {
        INFO(version);
        const auto found =
            discover_file("", fmt::format("<topology {}><object type=\"Machine\"/></topology>", version));
        REQUIRE(!found.ok());
        CHECK(found.status().code() == weftInvalidArgument);
    }
    if (!hwloc::this_machine("").ok()) return;
    const std::string text = text_of("hwloc_comment.xml");
    const auto changed = [&](const std::string& from, const std::string& to) {
        std::string other = text;
        for (size_t at = other.find(from); at != other.npos; at = other.find(from, at + to.size()))
            other.replace(at, from.size(), to);
        return other;
    };
    const std::string header = text.substr(0, text.find("<topology"));
    const std::string texts[] = {
        text,
        "\xef\xbb\xbf" + text,
        text.substr(header.size()),
        changed("<!-- a licence -->", "<?pi a?><!-- <system> -->\n\n"),
        changed("</object>", "<!-- here --></object>"),
        changed("hwloc2.dtd", "a/very/long/path/that/somebody/has/made/hwloc2.dtd"),
        changed("gp_index=\"2\">", "gp_index=\"2\"\n>\n<info value='&lt;&#10;\"' name='a'/>"),
        changed("</topology>", "<userdata length='1'>x</userdata><new><object/></new></topology>"),
        changed("\"", "'")};
    for (const std::string& each : texts) {
        INFO(each);
        const auto found = discover_file("", each);
        INFO(found.status().sentence());
        REQUIRE(found.ok());
        REQUIRE(found->graph.nodes().size() == 1);
        CHECK(found->graph.node(0).cpu.cores == 2);
    }
}
