#include "topology/description.hpp"

#include <map>
#include <optional>
#include <utility>

#include "topology/files/topology_xml.hpp"

namespace weft::internal::topology {

namespace {

// Each virtual machine numbers its buses in its own way; only ids of GPUs are used.
std::string numbered(size_t device) { return fmt::format("{:04x}:{:02x}:00.0", 0xf000 + device / 256, device % 256); }

// With the parts of a partitioned GPU.
std::vector<Gpu*> all_of(Node& node) {
    std::vector<Gpu*> all{&node.gpu};
    for (Gpu& part : node.parts) all.push_back(&part);
    return all;
}

}  // namespace

std::string shared_domain(const Graph& graph, int host) {
    std::optional<std::string> domain;
    for (const int gpu : graph.of_kind(NodeKind::gpu)) {
        const Node& node = graph.node(gpu);
        if (node.host != host) continue;
        std::string its = node.gpu.domain;
        // Without a name: the switches that all hosts of the graph share.
        for (const Link& link : graph.links())
            if (link.source == gpu && its.empty() && graph.node(link.target).kind == NodeKind::nvswitch &&
                graph.node(link.target).host < 0)
                its = "of all hosts";
        if (domain && *domain != its) return {};
        domain = its;
    }
    return domain.value_or("");
}

std::string describe(const Graph& graph, bool gpus) {
    return graph.hosts().size() == 1 ? describe_host(graph, 0, gpus) : std::string();
}

std::string describe_host(const Graph& graph, int host, bool gpus) {
    Graph stated = graph, plain;
    stated.disconnect();
    std::map<std::string, std::string> renamed;
    std::vector<int> indices;
    bool all = plain.host("").ok();
    for (const Node& original : stated.nodes()) {
        indices.push_back(unknown);
        if (original.host != host || original.kind == NodeKind::nvswitch || !all) continue;
        Node node = original;
        node.host = 0;
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
        if (same.source == unknown) continue;
        if (const auto place = renamed.find(same.target); place != renamed.end()) same.target = place->second;
        if (gpus && all) all = plain.state(std::move(same)).ok();
    }
    return all ? write_topology(plain) : std::string();
}

}  // namespace weft::internal::topology
