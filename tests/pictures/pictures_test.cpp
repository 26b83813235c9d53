// The files that the command draws: XML readers read them, they hold all data that was asked for, and nothing in them
// runs, with any names. Also the input that it refuses to draw.
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "src/base/file.hpp"
#include "src/registry.hpp"
#include "src/xml/xml.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/folder.hpp"
#include "tests/subprocess.hpp"
#include "tools/pictures/svg.hpp"
#include "tools/pictures/timeline.hpp"
#include "tools/schedule_picture.hpp"

using namespace weft::internal;
using namespace weft::internal::test;

static const std::string machines = std::string(WEFT_TOP) + "/tests/topology/machines/";

static std::string file_text(const std::string& name) {
    auto text = read_file(name, 1 << 20);
    REQUIRE(text.ok());
    return *text;
}

// Draws into a file of its own; ends the test where that fails.
static std::string drawn(std::vector<std::string> words) {
    const Folder made;
    const std::string file = made.path / "picture.svg";
    words.insert(words.begin(), WEFT_COMMAND);
    words.insert(words.end(), {"--svg", file});
    const ProcessResult outcome = run(words);
    INFO(outcome.error);
    REQUIRE(outcome.status == 0);
    return file_text(file);
}

static size_t count(const std::string& text, const std::string& what) {
    size_t found = 0;
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + what.size())) ++found;
    return found;
}

static size_t curves(const std::string& svg) {
    size_t found = 0;
    std::istringstream lines(svg);
    for (std::string line; std::getline(lines, line);)
        found += line.starts_with("<path") && line.find('C') != line.npos;
    return found;
}

// How often each element is there. Checks that it is XML, that elements are those that a picture has, and that boxes and
// words begin and end in the picture.
static std::map<std::string, int> elements_of(const std::string& svg) {
    struct Reader : xml::Handler {
        std::map<std::string, int> elements;
        double width = 0, height = 0;
        int outside = 0;
        void start(xml::Element& element) override {
            const auto value = [&](const char* name) {
                const char* text = element.find(name);
                return text ? std::atof(text) : 0.0;
            };
            const std::string name(element.name());
            ++elements[name];
            if (name == "svg") width = value("width"), height = value("height");
            if (name != "rect" && name != "text") return;
            outside += value("x") < 0 || value("y") < 0 || value("x") + value("width") > width ||
                       value("y") + value("height") > height;
        }
    } reader;
    const Status status = xml::read(svg, reader);
    INFO(status.sentence());
    REQUIRE(status.ok());
    CHECK(reader.outside == 0);
    for (const auto& [name, number] : reader.elements) {
        INFO(name);
        CHECK((name == "svg" || name == "rect" || name == "path" || name == "text" || name == "title" || name == "g"));
    }
    return reader.elements;
}

TEST_CASE("every machine is drawn as one SVG file, the same each time", "[pictures]") {
    for (const auto& each : std::filesystem::directory_iterator(machines)) {
        INFO(each.path());
        const std::string svg = drawn({"topology", "show", each.path()});
        CHECK(elements_of(svg)["svg"] == 1);
        CHECK(svg == drawn({"topology", "show", each.path()}));
        CHECK(svg == drawn({"info", "topology", each.path()}));
        CHECK(run({WEFT_COMMAND, "topology", "show", each.path()}).output ==
              run({WEFT_COMMAND, "info", "topology", each.path()}).output);
    }
    elements_of(drawn({"topology", "show"}));  // this machine
}

TEST_CASE("a machine's picture has a box for each device and a line for each link", "[pictures]") {
    const std::string mesh = drawn({"topology", "show", machines + "dgx1_v100.xml"});
    CHECK(count(mesh, ">gpu ") == 8);
    CHECK(count(mesh, ">PCI switch<") == 4);
    CHECK(count(mesh, ">mlx5_") == 4);
    CHECK(curves(mesh) == 16);  // NVLinks
    CHECK(count(mesh, ">NVLink 40 GB/s<") == 1);
    CHECK(count(mesh, ">NVLink 20 GB/s<") == 1);
    CHECK(count(mesh, ">between cpus 6 GB/s<") == 1);
    // Of two trays alike one is drawn, with the switch that joins them.
    const std::string rack = drawn({"topology", "show", machines + "gb200_nvl72_slice.xml"});
    CHECK(count(rack, ">gpu ") == 4);
    CHECK(count(rack, ">host x 2<") == 1);
    CHECK(count(rack, ">NVSwitch of rack-0.clique-0<") == 1);
    // A GPU's links to all planes of its switch are one line.
    CHECK(count(drawn({"topology", "show", machines + "dgx_h100.xml"}), ">NVLink 370.8 GB/s<") == 1);
}

TEST_CASE("a search's picture has a circle for each ring and trees between machines", "[pictures]") {
    const std::string mesh = drawn({"topology", "search", machines + "dgx1_v100.xml"});
    for (int ring = 0; ring < 6; ++ring) CHECK(count(mesh, ">ring " + std::to_string(ring) + "<") == 1);
    CHECK(count(mesh, ">gpu0<") == 6);
    CHECK(count(mesh, "Z\" fill") == 6 * 8);  // arrow heads
    const std::string hosts = drawn({"topology", "search", machines + "dgx_h100.xml", "--hosts", "8"});
    CHECK(count(hosts, ">host x 8<") == 1);
    CHECK(count(hosts, ">chain 7<") == 1);
    CHECK(count(hosts, "Z\" fill") == 8 * (7 + 2));
    CHECK(count(hosts, ">tree 1<") == 1);
    CHECK(drawn({"topology", "search", machines + "dgx_h100.xml", "--hosts", "17"}).find(">tree 1<") ==
          std::string::npos);
    for (const auto& each : std::filesystem::directory_iterator(machines)) {
        INFO(each.path());
        elements_of(drawn({"topology", "search", each.path()}));
    }
}

// Of so many GPUs below one switch.
static std::string rack(int gpus) {
    std::ostringstream xml;
    xml << "<system version=\"1\"><cpu numaid=\"0\">";
    for (int gpu = 0; gpu < gpus; ++gpu)
        xml << "<pci busid=\"" << std::hex << 0x1000 + gpu << ":00:00.0\" class=\"0x030200\"><gpu dev=\"" << std::dec
            << gpu << "\" sm=\"90\"><nvlink target=\"0000:07:00.0\" count=\"18\" tclass=\"0x068000\"/></gpu></pci>";
    xml << "</cpu></system>";
    return xml.str();
}

TEST_CASE("circles have as many stops as one can read", "[pictures]") {
    const Folder made;
    const std::string file = made.path / "rack.xml";
    std::ofstream(file) << rack(40);
    const std::string most = drawn({"topology", "search", file});
    elements_of(most);
    CHECK(count(most, ">ring") > 0);
    std::ofstream(file) << rack(41);
    CHECK(count(drawn({"topology", "search", file}), ">Rings of 41 stops are not drawn, 40 are the most") == 1);
}

TEST_CASE("a schedule's picture has a box for each step and an arrow for each message", "[pictures]") {
    const std::string ring = drawn({"schedule", "show", "ring", "--ranks", "4"});
    CHECK(elements_of(ring)["g"] == 4 * 7);
    CHECK(count(ring, "Z\" fill") == 4 * 6);
    CHECK(count(ring, ">rank ") == 4);
    CHECK(ring == drawn({"schedule", "show", "ring", "--ranks", "4"}));
    CHECK(count(drawn({"schedule", "show", "all_pairs", "--ranks", "4"}), "Z\" fill") == 4 * 3 * 2);
    CHECK(count(drawn({"schedule", "show", "ring", "--ranks", "2", "--host", "dgx-h100"}), "kind dgx-h100") == 1);
    // One byte a rank, for it has no data.
    CHECK(count(drawn({"schedule", "show", "dissemination", "-n", "4", "--collective", "barrier"}), "Z\" fill") ==
          4 * 2);
    for (const char* algorithm : {"one_shot", "two_shot", "two_level_ring", "halving_doubling", "rank_order"})
        elements_of(drawn({"schedule", "show", algorithm, "--ranks", "6", "--hosts",
                           std::string(algorithm).starts_with("two_level") ? "2" : "1"}));
}

TEST_CASE("every algorithm's schedules are drawn, with an arrow for each step that sends", "[pictures]") {
    for (const Algorithm& row : registry::algorithms())
        for (const int ranks : {1, 2, 5, 6}) {
            Layout layout{ranks, 0, {}};
            if (ranks == 6) layout.hosts = hosts_in_blocks(ranks, 2);
            if (row.refusal(layout)) continue;
            std::vector<Schedule> schedules;
            for (; layout.rank < ranks; ++layout.rank)
                schedules.push_back(
                    row.build(layout, {.channels = 1, .root = facts_of(row.collective).rooted ? 0 : -1}));
            tools::PictureRequest request;
            request.hosts = ranks == 6 ? 2 : 1;
            const auto svg = tools::picture_of(schedules, row, request);
            INFO(row.name << " " << name_of(row.collective) << " of " << ranks << ": " << svg.status().sentence());
            REQUIRE(svg.ok());
            elements_of(*svg);
            CHECK(count(*svg, "Z\" fill") == count(*svg, "<title>send ") + count(*svg, "_send "));
        }
}

TEST_CASE("an unreadable file is refused with an error", "[pictures]") {
    const Folder made;
    const std::string file = made.path / "picture.svg";
    const auto refused = [&](std::vector<std::string> words, const std::string& expected) {
        words.insert(words.begin(), WEFT_COMMAND);
        words.insert(words.end(), {"--svg", file});
        const ProcessResult outcome = run(words);
        INFO(outcome.error);
        CHECK(outcome.status != 0);
        CHECK_EXPECTED(PrintedError{outcome.error}, expected);
        CHECK_FALSE(std::filesystem::exists(file));
    };
    refused({"schedule", "show", "ring", "-n", "17"}, "[command.option] at most 16 ranks, not 17");
    refused({"schedule", "show", "ring", "-n", "8", "--bytes", "512M"}, "[usage.limit] at most 1200 steps");
    refused({"schedule", "show", "all_pairs", "-n", "12"}, "[usage.limit] tracks");
    refused({"schedule", "show", "ring", "-n", "5", "--hosts", "2"}, "[command.option] 5 ranks");
    refused({"schedule", "show", "ring", "-n", "9", "--host", "dgx-h100"},
            "[command.option] a dgx-h100 has 8 devices, not 9");
    refused({"schedule", "show", "ring", "-n", "4", "--host", "abacus"}, "[command.option] `abacus`");
    refused({"schedule", "show", "ring", "-n", "4", "--rank", "1"}, "[command.option] --svg or --rank, not both");
    refused({"topology", "search", machines + "dgx1_v100.xml", "--graph", "found.xml"}, "[] --svg");
    const std::string large = made.path / "large.xml";
    {
        std::ofstream xml(large);
        xml << "<system version=\"1\"><cpu numaid=\"0\">";
        for (int device = 0; device < 400; ++device)
            xml << "<pci busid=\"" << std::hex << 0x1000 + device << ":00:00.0\" class=\"0x020000\"/>";
        xml << "</cpu></system>";
    }
    refused({"topology", "show", large}, "[usage.limit] at most 400 devices, not 401");
    for (const std::vector<std::string>& words : {std::vector<std::string>{"schedule", "show", "ring", "-n", "4"},
                                                  {"topology", "show", machines + "a100_bridge.xml"}}) {
        std::vector<std::string> all{WEFT_COMMAND};
        all.insert(all.end(), words.begin(), words.end());
        all.insert(all.end(), {"--svg", "/nowhere/picture.svg"});
        const ProcessResult outcome = run(all);
        CHECK(outcome.status == 1);
        CHECK(outcome.error.find("/nowhere/picture.svg could not be written") != std::string::npos);
    }
    tools::Svg nothing;
    CHECK_ERROR(tools::draw_timeline(nothing, {}, {}), "command.input");
}

TEST_CASE("names are text in pictures, with any characters", "[pictures]") {
    const Folder made;
    const std::string file = made.path / "hostile.xml";
    std::ofstream(file)
        << R"(<system version="1"><cpu numaid="0"><nic><net name="&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;"
        dev="0" speed="1000" port="0"/></nic></cpu></system>)";
    const std::string svg = drawn({"topology", "show", file});
    CHECK(elements_of(svg)["script"] == 0);
    CHECK(svg.find("&lt;script&gt;") != svg.npos);
    std::ofstream(file) << R"(<system version="1"><cpu numaid="0"><nic><net name=")" << std::string(4'000, 'w')
                        << R"(" dev="0" speed="1000" port="0"/></nic></cpu></system>)";
    CHECK(drawn({"topology", "search", file, "--hosts", "2"}).size() < 5'000);

    tools::Svg picture;
    picture.text({1, 1}, "a<b>&\"\x01\xff\xc3\xa9\xed\xa0\x80");
    const std::string text = picture.finish("<&>");
    elements_of(text);
    CHECK(text.find(">a&lt;b&gt;&amp;&quot;?\?\xc3\xa9\?\?\?<") != text.npos);
    CHECK(text.find("<title>&lt;&amp;&gt;</title>") != text.npos);
    // No character is cut in two.
    CHECK(tools::fitted("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 20, 10) == "\xc3\xa9...");
    CHECK(tools::fitted("short", 200, 10) == "short");
}
