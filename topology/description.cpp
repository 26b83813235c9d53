#include "topology/description.hpp"

#include <map>
#include <utility>

#include "topology/topology_xml.hpp"

namespace weft::topology {

namespace {

// Virtual machines number their buses each in its own way: only GPUs' ids are asked for.
std::string numbered(size_t device) { return fmt::format("{:04x}:{:02x}:00.0", 0xf000 + device / 256, device % 256); }

// With the parts of a divided one.
std::vector<Gpu*> all_of(Node& node) {
    std::vector<Gpu*> all{&node.gpu};
    for (Gpu& part : node.parts) all.push_back(&part);
    return all;
}

}  // namespace

std::string shared_domain(const Graph& graph) {
    std::string domain;
    const std::vector<int> gpus = graph.of_kind(NodeKind::gpu);
    for (const int gpu : gpus) {
        if (graph.node(gpu).gpu.domain != graph.node(gpus.front()).gpu.domain) return {};
        domain = graph.node(gpu).gpu.domain;
    }
    return domain;
}

std::string describe(const Graph& graph, bool gpus) {
    if (graph.hosts().size() != 1) return {};
    Graph stated = graph, plain;
    stated.disconnect();
    std::map<std::string, std::string> renamed;
    std::vector<int> indices;
    bool all = plain.host("").ok();
    for (const Node& original : stated.nodes()) {
        indices.push_back(unknown);
        if (original.kind == NodeKind::nvswitch || !all) continue;
        Node node = original;
        if (node.parent >= 0) node.parent = indices[size_t(node.parent)];
        node.cpu.allowed.clear();
        for (Gpu* gpu : all_of(node)) {
            gpu->rank = unknown;
            gpu->domain.clear();
        }
        node.port.guid.clear();
        node.port.gid.clear();
        if (node.kind == NodeKind::gpu && !gpus) {
            node.kind = NodeKind::pci;
            node.pci = {};
            node.gpu = {};
            node.parts.clear();
        }
        if (node.kind != NodeKind::gpu && !node.busid.empty())
            node.busid = renamed.emplace(node.busid, numbered(renamed.size())).first->second;
        node.pci.virtual_of.clear();
        const auto index = plain.add(std::move(node));
        all = index.ok();
        if (all) indices.back() = *index;
    }
    for (const Statement& statement : stated.statements()) {
        Statement same = statement;
        same.source = indices[size_t(same.source)];
        if (const auto place = renamed.find(same.target); place != renamed.end()) same.target = place->second;
        if (gpus && all) all = plain.state(std::move(same)).ok();
    }
    return all ? write_topology(plain) : std::string();
}

}  // namespace weft::topology
