// Paths against an enumeration of all ways, on random small graphs.
#include "topology/model/paths.hpp"
#include "topology/model/connect.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <random>
#include <tuple>

#include "tests/amount.hpp"
#include "tests/catch.hpp"
#include "tests/error.hpp"
#include "tests/topology/machines.hpp"
#include "topology/files/text.hpp"

using namespace weft::internal;
using namespace weft::internal::topology;

namespace {

// Class, bandwidth (negative, for more is better), hops, latency.
using Cost = std::tuple<PathClass, double, int, double>;

// All ways without a circle, one after the other, by the rules of paths.hpp.
class Enumeration {
  public:
    Enumeration(const Graph& graph) : graph_(graph) {
        for (const Link& link : graph.links()) {
            add(link.source, link.target, link);
            if (link.both_ways) add(link.target, link.source, link);
        }
    }
    std::map<int, Cost> from(int source) {
        best_.clear();
        on_way_.assign(graph_.nodes().size(), false);
        best_[source] = {PathClass::loc, 0, 0, 0};
        walk(source, {PathClass::loc, -1e300, 0, 0}, {source});
        return best_;
    }

  private:
    struct Bundle {
        double bandwidth_gbs = 0, latency_us = 1e300;
    };
    void add(int source, int target, const Link& link) {
        Bundle& bundle = bundles_[{source, target, link.kind}];
        bundle.bandwidth_gbs += link.bandwidth_gbs;
        bundle.latency_us = std::min(bundle.latency_us, link.latency_us);
    }
    NodeKind kind(int node) const { return graph_.node(node).kind; }
    PathClass class_of(int a, int b, LinkKind link) const {
        switch (link) {
            case LinkKind::nvlink: return PathClass::nvl;
            case LinkKind::c2c: return PathClass::c2c;
            case LinkKind::sys: return PathClass::sys;
            case LinkKind::net: return PathClass::loc;
            case LinkKind::local:
                return kind(a) == NodeKind::pci && kind(b) == NodeKind::pci ? PathClass::pxb : PathClass::loc;
            case LinkKind::pci: break;
        }
        if (kind(a) == NodeKind::cpu || kind(b) == NodeKind::cpu) return PathClass::phb;
        return kind(a) == NodeKind::pci && kind(b) == NodeKind::pci ? PathClass::pxb : PathClass::pix;
    }
    // From a GPU over its C2C to a NIC or port, or back: the C2C is the first link, or the last one.
    bool is_c2c_way(int source, int target, LinkKind last) const {
        const auto is_nic = [&](int node) { return kind(node) == NodeKind::nic || kind(node) == NodeKind::port; };
        return (kind(source) == NodeKind::gpu && is_nic(target) && first_ == LinkKind::c2c) ||
               (is_nic(source) && kind(target) == NodeKind::gpu && last == LinkKind::c2c);
    }
    void walk(int node, Cost cost, std::vector<int> way) {
        on_way_[size_t(node)] = true;
        for (const auto& [key, bundle] : bundles_) {
            const auto [source, target, link] = key;
            if (source != node || on_way_[size_t(target)]) continue;
            PathClass path_class = std::max(std::get<0>(cost), class_of(source, target, link));
            const bool forwards = way.size() == 1 || (kind(node) != NodeKind::gpu && kind(node) != NodeKind::port);
            if (!forwards) {
                const bool nvb = way.size() == 2 && kind(way[0]) == NodeKind::gpu && kind(node) == NodeKind::gpu &&
                                 kind(target) == NodeKind::gpu && first_ == LinkKind::nvlink &&
                                 link == LinkKind::nvlink;
                if (!nvb) continue;
                path_class = PathClass::nvb;
            }
            if (way.size() == 1) first_ = link;
            const Cost next{path_class, std::max(std::get<1>(cost), -bundle.bandwidth_gbs), std::get<2>(cost) + 1,
                            std::get<3>(cost) + bundle.latency_us};
            Cost told = next;
            if (path_class == PathClass::phb && is_c2c_way(way.front(), target, link))
                std::get<0>(told) = PathClass::p2c;
            const auto [best, added] = best_.try_emplace(target, told);
            if (!added && told < best->second) best->second = told;
            // NVB ends here.
            if (!forwards) continue;
            auto longer = way;
            longer.push_back(target);
            walk(target, next, longer);
        }
        on_way_[size_t(node)] = false;
    }

    const Graph& graph_;
    std::map<std::tuple<int, int, LinkKind>, Bundle> bundles_;
    std::map<int, Cost> best_;
    std::vector<bool> on_way_;
    std::optional<LinkKind> first_;
};

Graph random_graph(std::mt19937& random) {
    const auto draw = [&](int below) { return int(random() % unsigned(below)); };
    Graph graph;
    REQUIRE(graph.host("").ok());
    const int cpus = 1 + draw(3), devices = 2 + draw(7);
    for (int i = 0; i < cpus; ++i) {
        Node cpu;
        cpu.kind = NodeKind::cpu;
        cpu.cpu.numaid = i;
        REQUIRE(graph.add(cpu).ok());
    }
    std::vector<int> gpus;
    for (int i = 0; i < devices; ++i) {
        Node node;
        const NodeKind kinds[] = {NodeKind::pci, NodeKind::pci, NodeKind::gpu, NodeKind::gpu, NodeKind::nic};
        node.kind = kinds[draw(5)];
        node.busid = fmt::format("0000:{:02x}:00.0", i);
        node.pci.link_width = 1 << draw(5);
        node.pci.link_speed = draw(2) ? "8.0 GT/s PCIe" : "16.0 GT/s PCIe";
        do {
            node.parent = draw(int(graph.nodes().size()));
        } while (graph.node(node.parent).kind != NodeKind::cpu && graph.node(node.parent).kind != NodeKind::pci);
        const auto index = graph.add(node);
        REQUIRE(index.ok());
        if (node.kind == NodeKind::gpu) gpus.push_back(*index);
        if (node.kind != NodeKind::nic) continue;
        Node port;
        port.kind = NodeKind::port;
        port.parent = *index;
        port.port.speed = 50'000 * (1 + draw(4));
        REQUIRE(graph.add(port).ok());
    }
    for (const int gpu : gpus) {
        if (draw(3) == 0) REQUIRE(graph.state({LinkKind::c2c, gpu, {}, {}, 1 + draw(3), 20'000, {}}).ok());
        if (draw(4) == 0) REQUIRE(graph.state({LinkKind::nvlink, gpu, "switch", "0x068000", 1 + draw(4), 0, {}}).ok());
        for (const int other : gpus) {
            if (other != gpu && draw(3) == 0)
                REQUIRE(
                    graph.state({LinkKind::nvlink, gpu, graph.node(other).busid, "0x030200", 1 + draw(4), 0, {}}).ok());
        }
    }
    for (int i = draw(4); i > 0; --i) {
        const LinkKind kinds[] = {LinkKind::local, LinkKind::nvlink, LinkKind::pci, LinkKind::sys};
        const int nodes = int(graph.nodes().size());
        Link link{kinds[draw(4)], draw(nodes), draw(nodes), draw(2) == 0, 1, double(5 * (1 + draw(6))),
                  0.1 * draw(9),  false,       {}};
        if (link.source != link.target) REQUIRE(graph.add_link(link).ok());
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    return graph;
}

}  // namespace

TEST_CASE("the path is the nearest class, then the widest, the shortest, the quickest", "[topology]") {
    INFO("seed " << weft::internal::test::seed());
    std::mt19937 random(weft::internal::test::seed());
    std::map<PathClass, int> seen;
    for (int round = 0; round < 300; ++round) {
        INFO("round " << round);
        const Graph graph = random_graph(random);
        const Paths paths(graph);
        Enumeration enumeration(graph);
        for (int source = 0; source < int(graph.nodes().size()); ++source) {
            const auto expected = enumeration.from(source);
            const auto found = paths.from(source);
            for (int target = 0; target < int(graph.nodes().size()); ++target) {
                if (target == source) continue;
                const Path& path = found[size_t(target)];
                INFO(graph.name(source) << " to " << graph.name(target));
                const auto best = expected.find(target);
                ++seen[path.path_class];
                if (best == expected.end()) {
                    CHECK(path.path_class == PathClass::none);
                    CHECK(paths.route(source, target).empty());
                    continue;
                }
                const auto [path_class, bandwidth, hops, latency] = best->second;
                CHECK(std::string(name_of(path.path_class)) == name_of(path_class));
                CHECK(path.bandwidth_gbs == -bandwidth);
                CHECK(path.hops == hops);
                CHECK(path.latency_us == Approx(latency));
                const auto route = paths.route(source, target);
                CHECK(route.size() == size_t(hops) + 1);
            }
        }
    }
    for (const PathClass each : {PathClass::nvl, PathClass::nvb, PathClass::c2c, PathClass::pix, PathClass::pxb,
                                 PathClass::p2c, PathClass::phb, PathClass::sys})
        CHECK(seen[each] > 0);
}

TEST_CASE("where links go both ways paths do, too: PXN stays within a host", "[topology]") {
    for (const auto& file : test::files_in("machines")) {
        INFO(file);
        const auto machine = read_topology(test::file_text(file));
        REQUIRE(machine.ok());
        const Paths paths(machine->graph, {.pxn = true});
        std::vector<std::vector<Path>> rows;
        for (int node = 0; node < int(machine->graph.nodes().size()); ++node) rows.push_back(paths.from(node));
        for (size_t source = 0; source < rows.size(); ++source) {
            for (size_t target = 0; target < source; ++target) {
                INFO(machine->graph.name(int(source)) << " and " << machine->graph.name(int(target)));
                CHECK(std::string(name_of(rows[source][target].path_class)) ==
                      name_of(rows[target][source].path_class));
                CHECK(rows[source][target].bandwidth_gbs == Approx(rows[target][source].bandwidth_gbs));
            }
        }
    }
}

TEST_CASE("hosts of thousands of GPUs and NICs, no two links alike, takes seconds", "[topology]") {
    // With fewer ports every one is tried, and with fewer than 34 GPUs PXN through every one.
    constexpr int gpus = test::sanitized ? 40 : 1'000, nics = test::sanitized ? 200 : 1'000;
    const PathOptions options =
        test::sanitized ? PathOptions{.pxn = true, .visits_most = 1 << 17} : PathOptions{.pxn = true};
    Graph graph;
    for (const char* hash : {"one", "other"}) {
        Node cpu, bridge;
        cpu.kind = NodeKind::cpu;
        cpu.cpu.numaid = 0;
        cpu.host = bridge.host = *graph.host(hash);
        bridge.parent = *graph.add(cpu);
        bridge.busid = "0000:00:01.0";
        const int above = *graph.add(bridge);
        for (int i = 0; i < nics; ++i) {
            for (const NodeKind kind : {NodeKind::gpu, NodeKind::nic}) {
                if (kind == NodeKind::gpu && i >= gpus) continue;
                Node device;
                device.kind = kind;
                device.host = cpu.host;
                device.parent = above;
                device.busid = fmt::format("{:04x}:{:02x}:{:02x}.0", i, int(kind), 0);
                device.pci.link_width = 1 + i % 32;
                const int node = *graph.add(device);
                if (kind == NodeKind::gpu) {
                    REQUIRE(graph.state({LinkKind::nvlink, node, "switch", "0x068000", 1 + i % 200, 0, {}}).ok());
                    REQUIRE(graph.state({LinkKind::c2c, node, {}, {}, 1, 1000 + i, {}}).ok());
                    continue;
                }
                Node port;
                port.kind = NodeKind::port;
                port.host = cpu.host;
                port.parent = node;
                port.port.speed = 1'000 + i;
                REQUIRE(graph.add(port).ok());
            }
        }
    }
    std::vector<std::string> notes;
    REQUIRE(connect(graph, notes).ok());
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = write_text(graph, options);
    // Sanitizers make it ten times what it is.
    CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(100));
    CHECK(text.find(fmt::format("host 1 has {} ports: paths from other hosts arrive only at its ", nics)) !=
          std::string::npos);
    CHECK(text.find(fmt::format("host 0 has {} GPUs: PXN is tried through 32 of them", gpus)) != std::string::npos);
}

TEST_CASE("a graph refuses links of no bandwidth, of a node with itself and of nodes that are not there",
          "[topology]") {
    Graph graph;
    REQUIRE(graph.host("").ok());
    for (int i = 0; i < 2; ++i) {
        Node cpu;
        cpu.kind = NodeKind::cpu;
        cpu.cpu.numaid = i;
        REQUIRE(graph.add(cpu).ok());
    }
    CHECK_ERROR(graph.add_link({LinkKind::sys, 0, 0, true, 1, 1, 0, false, {}}), "topology.invalid");
    CHECK_ERROR(graph.add_link({LinkKind::sys, 0, 2, true, 1, 1, 0, false, {}}), "topology.invalid");
    CHECK_ERROR(graph.add_link({LinkKind::sys, -1, 1, true, 1, 1, 0, false, {}}), "topology.invalid");
    CHECK_ERROR(graph.add_link({LinkKind::sys, 0, 1, true, 1, 0, 0, false, {}}), "topology.invalid");
    CHECK_ERROR(graph.add_link({LinkKind::sys, 0, 1, true, 1, 1, -1, false, {}}), "topology.invalid");
    CHECK_ERROR(graph.add_link({LinkKind::sys, 0, 1, true, 0, 1, 1, false, {}}), "topology.invalid");
    CHECK(graph.add_link({LinkKind::sys, 0, 1, false, 1, 1, 0, false, {}}).ok());
    Node orphan;
    orphan.busid = "0000:01:00.0";
    CHECK_EXPECTED(graph.add(orphan), "[topology.invalid] pci 0000:01:00.0");
}
