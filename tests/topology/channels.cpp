#include "tests/topology/channels.hpp"

#include <algorithm>
#include <set>

#include "tests/catch.hpp"
#include "topology/model/connect.hpp"
#include "topology/search/rank_orders.hpp"

namespace weft::internal::test {

using namespace topology;

namespace {

// Follows a route; -1: it does not begin there, or breaks.
int end_of(const RoutingGraph& fabric, const std::vector<int>& route, int node) {
    for (size_t i = 0; i < route.size(); ++i) {
        const Arc& arc = fabric.arcs()[size_t(route[i])];
        if (arc.source != node || arc.gbs <= 0) return -1;
        node = arc.target;
        const NodeKind kind = fabric.graph().node(node).kind;
        if (i + 1 < route.size() && kind == NodeKind::gpu) {
            // A GPU forwards only what comes or goes by NVLink.
            const LinkKind in = arc.kind, out = fabric.arcs()[size_t(route[i + 1])].kind;
            if (in != LinkKind::nvlink && out != LinkKind::nvlink) return -1;
        }
    }
    return node;
}

void check_kind(const Channels& channels, const KindChannels& kind) {
    const RoutingGraph fabric(kind.machine_graph);
    std::vector<int> uses(fabric.arcs().size());
    REQUIRE(int(kind.packing.rings.size()) == channels.channels);
    for (const PackedRing& ring : kind.packing.rings) {
        CHECK(std::set<int>(ring.order.begin(), ring.order.end()).size() == kind.sites.size());
        REQUIRE(ring.order.size() == kind.sites.size());
        std::vector<int> stops;
        if (ring.entry >= 0) stops.push_back(ring.entry);
        for (const int site : ring.order) stops.push_back(kind.sites[size_t(site)]);
        stops.push_back(ring.exit >= 0 ? ring.exit : stops.front());
        REQUIRE(ring.routes.size() + 1 == stops.size());
        for (size_t i = 0; i < ring.routes.size(); ++i) {
            CHECK(end_of(fabric, ring.routes[i], stops[i]) == stops[i + 1]);
            for (const int arc : ring.routes[i]) ++uses[size_t(arc)];
        }
    }
    for (size_t i = 0; i < uses.size(); ++i) CHECK(uses[i] * channels.channel_gbs <= fabric.arcs()[i].gbs * (1 + 1e-9));
}

void check_orders(const Channels& channels) {
    for (const auto& order : ring_orders(channels)) {
        std::vector<bool> met(size_t(channels.ranks));
        REQUIRE(int(order.size()) == channels.ranks);
        for (const int32_t rank : order) met[size_t(rank)] = true;
        CHECK(std::count(met.begin(), met.end(), true) == channels.ranks);
    }
    for (const RankTree& tree : trees(channels)) {
        CHECK(std::count(tree.parent.begin(), tree.parent.end(), -1) == 1);
        // From each rank to the top, over ranks that are known to reach it.
        std::vector<char> reaches(tree.parent.size());
        for (int32_t rank = 0; rank < channels.ranks; ++rank) {
            std::vector<int32_t> way;
            int32_t at = rank;
            while (at >= 0 && !reaches[size_t(at)] && int(way.size()) <= channels.ranks) {
                way.push_back(at);
                at = tree.parent[size_t(at)];
            }
            REQUIRE(int(way.size()) <= channels.ranks);
            for (const int32_t each : way) reaches[size_t(each)] = 1;
        }
    }
}

}  // namespace

void check_channels_are_valid(const Channels& channels) {
    CHECK(channels.found_gbs <= channels.bound_gbs * (1 + 1e-9));
    CHECK(channels.bound_gbs <= channels.bound_of_all_gbs * (1 + 1e-9));
    CHECK(channels.found_gbs == Approx(channels.channels * channels.channel_gbs));
    for (const KindChannels& kind : channels.kinds)
        if (channels.channel_gbs > 0) check_kind(channels, kind);
    check_orders(channels);
}

int add_cpu(Graph& graph, int numaid) {
    Node node;
    node.kind = NodeKind::cpu;
    node.cpu.numaid = numaid;
    node.cpu.arch = "x86_64";
    node.cpu.vendor = "AuthenticAMD";
    const auto added = graph.add(node);
    REQUIRE(added.ok());
    return *added;
}

int add_gpu(Graph& graph, int parent, int dev, const char* link_speed) {
    Node node;
    node.kind = NodeKind::gpu;
    node.parent = parent;
    node.busid = "0000:" + std::to_string(10 + dev) + ":00.0";
    node.pci.link_speed = link_speed;
    node.pci.link_width = 16;
    node.gpu.dev = dev;
    const auto added = graph.add(node);
    REQUIRE(added.ok());
    return *added;
}

int add_port(Graph& graph, int parent, int dev, int speed) {
    Node node;
    node.kind = NodeKind::nic;
    node.parent = parent;
    node.busid = "0000:" + std::to_string(50 + dev) + ":00.0";
    node.pci.link_speed = "16.0 GT/s PCIe";
    node.pci.link_width = 16;
    const auto nic = graph.add(node);
    REQUIRE(nic.ok());
    Node port;
    port.kind = NodeKind::port;
    port.parent = *nic;
    port.port.dev = dev;
    port.port.name = "mlx5_" + std::to_string(dev);
    port.port.speed = speed;
    const auto added = graph.add(port);
    REQUIRE(added.ok());
    return *added;
}

void add_nvlinks(Graph& graph, int one, int other, int count) {
    REQUIRE(graph.add_link({LinkKind::nvlink, one, other, true, count, 20.0 * count, 0.4, false, {}}).ok());
}

Graph random_machine(std::mt19937& random, int gpus, bool with_ports) {
    const auto draw = [&](int below) { return int(random() % unsigned(below)); };
    Graph graph;
    REQUIRE(graph.host("").ok());
    std::vector<int> cpus{add_cpu(graph, 0)}, nodes;
    if (draw(2) == 1) cpus.push_back(add_cpu(graph, 1));
    const char* const speeds[] = {"8.0 GT/s PCIe", "16.0 GT/s PCIe"};
    for (int dev = 0; dev < gpus; ++dev)
        nodes.push_back(add_gpu(graph, cpus[size_t(draw(int(cpus.size())))], dev, speeds[draw(2)]));
    for (int dev = 0; with_ports && dev < 1 + draw(3); ++dev)
        add_port(graph, cpus[size_t(draw(int(cpus.size())))], dev, draw(2) ? 100'000 : 200'000);
    const int density = 1 + draw(3);
    for (int i = 0; i < gpus; ++i)
        for (int j = 0; j < i; ++j)
            if (draw(3) < density) add_nvlinks(graph, nodes[size_t(i)], nodes[size_t(j)], 1 + draw(2));
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    return graph;
}

}  // namespace weft::internal::test
