// Graph files against machines: those of a search fit, and others are refused with the reason.
#include "topology/search/channel_check.hpp"
#include "topology/model/connect.hpp"

#include <chrono>

#include "tests/catch.hpp"
#include "tests/topology/machines.hpp"

using namespace weft::internal;
using namespace weft::internal::test;
using namespace weft::internal::topology;

namespace {

std::vector<std::string> objections(const ChannelGraph& channels, const Graph& graph, int copies = 1) {
    const auto job = job_of_all(graph, copies);
    REQUIRE(job.ok());
    const auto found = check_channels(channels, *job);
    INFO(found.status().sentence());
    REQUIRE(found.ok());
    return *found;
}

using Sentences = std::vector<std::string>;

}  // namespace

TEST_CASE("channels that were found come back from their file, and fit", "[topology]") {
    for (const auto& file : files_in("machines")) {
        const std::string name = file.stem();
        const Graph graph = read_machine(name).graph;
        for (const int copies : {1, 2}) {
            const auto job = job_of_all(graph, copies);
            REQUIRE(job.ok());
            const auto found = search(*job);
            if (!found) continue;  // the cloud's NICs have no ports
            INFO(name << " " << copies << "\n" << write_graphs(found->kinds[0].graphs));
            const auto read = read_graphs(write_graphs(found->kinds[0].graphs));
            INFO(read.status().sentence());
            REQUIRE(read.ok());
            CHECK(read->notes.empty());
            CHECK(read->graphs == found->kinds[0].graphs);
            if (found->channel_gbs <= 0) continue;
            for (const ChannelGraph& channels : read->graphs) CHECK(objections(channels, graph, copies) == Sentences{});
        }
    }
}

TEST_CASE("each fault of channels that do not fit a machine is an error", "[topology]") {
    const Graph graph = read_machine("pcie_4_gpus").graph;
    const auto ring = [](std::initializer_list<int> devs, double gbs) {
        ChannelGraph channels;
        channels.intra_gbs = gbs;
        for (const int dev : devs)
            channels.channels.resize(1), channels.channels[0].stops.push_back({NodeKind::gpu, dev});
        return channels;
    };
    CHECK(objections(ring({0, 1, 2, 3}, 6), graph) == Sentences{});
    CHECK(objections(ring({0, 1, 2, 7}, 6), graph) ==
          Sentences{"channel 0 of graph 0 passes gpu 7, which the machine does not have",
                    "channel 0 of graph 0 misses gpu 3 (0000:af:00.0)"});
    CHECK(objections(ring({0, 1, 2}, 6), graph) == Sentences{"channel 0 of graph 0 misses gpu 3 (0000:af:00.0)"});
    CHECK(objections(ring({0, 1, 2, 3, 0}, 6), graph) == Sentences{"channel 0 of graph 0 passes gpu 0 twice"});
    CHECK(objections(ring({}, 6), graph) == Sentences{"graph 0 has no channels"});
    CHECK(objections(ring({0, 1, 2, 3}, 0), graph) == Sentences{"graph 0 does not say its speed"});
    CHECK(objections(ring({0, 1, 2, 3}, 9), graph) ==
          Sentences{
              "the link from cpu 1 to gpu 3 (0000:af:00.0) carries 6 GB/s; the channels of graph 0 want 9 GB/s of it",
              "the link from gpu 3 (0000:af:00.0) to cpu 1 carries 6 GB/s; the channels of graph 0 want 9 GB/s of it"});
    CHECK(objections(ring({0, 1, 2, 3}, 6), graph, 2) ==
          Sentences{"channel 0 of graph 0 has to begin and to end with a net: the job has several machines"});
    // Twice over UPI each way.
    CHECK(!objections(ring({0, 2, 1, 3}, 6), graph).empty());
    ChannelGraph tree = ring({0, 1, 2, 3}, 6);
    tree.pattern = Pattern::tree;
    CHECK(objections(tree, graph) == Sentences{});
    tree.intra_gbs = 7;
    CHECK(objections(tree, graph) == Sentences{"the trees of graph 0 have 7 GB/s each; their links leave them 6 GB/s"});
}

TEST_CASE("a file of very many stops is held against a machine of very many ports in a moment", "[topology]") {
    Graph graph;
    Node cpu;
    cpu.kind = NodeKind::cpu;
    cpu.cpu.numaid = 0;
    cpu.host = *graph.host("");
    REQUIRE(graph.add(cpu).ok());
    constexpr int ports = 3'000;
    for (int i = 0; i < ports; ++i) {
        Node nic, port;
        nic.kind = NodeKind::nic;
        nic.parent = 0;
        port.kind = NodeKind::port;
        port.parent = *graph.add(nic);
        REQUIRE(graph.add(port).ok());  // without an index: its place counts
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    ChannelGraph channels;
    channels.channels.resize(100);
    for (ChannelPath& channel : channels.channels) {
        channel.stops.assign(1'000, {NodeKind::port, ports - 1, unknown, 0});
        channel.stops.push_back({NodeKind::port, ports, unknown, 0});
    }
    const auto begin = std::chrono::steady_clock::now();
    const Sentences found = objections(channels, graph);
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));  // it had not ended after 100 s
    CHECK(found.size() == 20);
    CHECK(found[0] ==
          fmt::format("channel 0 of graph 0 passes net {} in its middle; NICs are the ends of a channel", ports - 1));
}
