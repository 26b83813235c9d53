#include "topology/model/graph.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace weft::internal::topology {

namespace {

std::string cpu_key(int host, int numaid) { return fmt::format("{} cpu {}", host, numaid); }
std::string busid_key(int host, std::string_view busid) { return fmt::format("{} {}", host, busid); }

bool may_have(NodeKind parent, NodeKind child) {
    switch (child) {
        case NodeKind::cpu:
        case NodeKind::nvswitch: return false;
        case NodeKind::pci:
        case NodeKind::gpu: return parent == NodeKind::cpu || parent == NodeKind::pci;
        case NodeKind::nic: return parent == NodeKind::cpu || parent == NodeKind::pci;
        case NodeKind::port: return parent == NodeKind::nic;
    }
    return false;
}

std::string nvswitch_key(int host, const std::string& domain) { return fmt::format("{} nvswitch {}", host, domain); }

}  // namespace

Result<int> Graph::host(std::string_view hash) {
    const auto found = std::find(hosts_.begin(), hosts_.end(), hash);
    if (found != hosts_.end()) return int(found - hosts_.begin());
    if (hosts_.size() == size_t(hosts_most))
        return fail(error::topology_invalid, "there are more than {} hosts; describe one host of each kind",
                    hosts_most);
    hosts_.emplace_back(hash);
    cpus_.push_back(0);
    return int(hosts_.size()) - 1;
}

Result<int> Graph::add(Node node) {
    if (nodes_.size() == size_t(nodes_most))
        return fail(error::topology_invalid, "there are more than {} cpus and devices", nodes_most);
    const int index = int(nodes_.size());
    if (node.kind != NodeKind::nvswitch && size_t(node.host) >= hosts_.size())
        return fail(error::topology_invalid, "host {} does not exist; there are {} hosts", node.host, hosts_.size());
    if (node.kind == NodeKind::cpu) {
        if (cpus_[size_t(node.host)] == cpus_per_host_most)
            return fail(error::topology_invalid, "a host has more than {} cpus; a cpu is a NUMA domain",
                        cpus_per_host_most);
        if (!by_busid_.try_emplace(cpu_key(node.host, node.cpu.numaid), index).second)
            return fail(error::topology_invalid,
                        "cpu {} appears twice; the cpus of several hosts need different values of host_hash",
                        node.cpu.numaid);
        ++cpus_[size_t(node.host)];
        node.parent = unknown;
    } else if (node.kind != NodeKind::nvswitch) {
        if (node.parent < 0 || node.parent >= index)
            return fail(error::topology_invalid, "{} {} has no parent", name_of(node.kind), node.busid);
        const Node& parent = nodes_[size_t(node.parent)];
        const bool of_software = node.kind == NodeKind::nic && parent.kind == NodeKind::cpu;
        if (node.busid.empty() && node.kind != NodeKind::port && !of_software)
            return fail(error::topology_invalid, "a {} has no bus id", name_of(node.kind));
        if (!may_have(parent.kind, node.kind) || parent.host != node.host)
            return fail(error::topology_invalid, "a {} cannot be the parent of a {}", name_of(parent.kind),
                        name_of(node.kind));
        if (node.kind == NodeKind::port && children(node.parent) == ports_per_nic_most)
            return fail(error::topology_invalid, "a nic has more than {} ports", ports_per_nic_most);
        if (!node.busid.empty() && !by_busid_.try_emplace(busid_key(node.host, node.busid), index).second)
            return fail(error::topology_invalid, "busid {} appears twice; each device has its own", node.busid);
    }
    if (node.parent >= 0) ++children_[size_t(node.parent)];
    push(std::move(node));
    return index;
}

void Graph::push(Node node) {
    nodes_.push_back(std::move(node));
    children_.push_back(0);
    stated_.push_back(0);
}

Status Graph::state(Statement statement) {
    if (statement.source < 0 || size_t(statement.source) >= nodes_.size())
        return fail(error::topology_invalid, "a link begins at node {}; there are {} nodes", statement.source,
                    nodes_.size());
    const NodeKind kind = node(statement.source).kind;
    if (kind != (statement.kind == LinkKind::local ? NodeKind::pci : NodeKind::gpu))
        return fail(error::topology_invalid, "{} cannot have a {} link", name(statement.source),
                    name_of(statement.kind));
    if (stated_[size_t(statement.source)] == statements_per_node_most)
        return fail(error::topology_invalid, "{} has more than {} links", name(statement.source),
                    statements_per_node_most);
    if (statements_.size() == size_t(links_most))
        return fail(error::topology_invalid, "there are more than {} links", links_most);
    if (statement.count < 1 || statement.count > nvlinks_most)
        return fail(error::topology_invalid, "a link has count {}; a count is 1 to {}", statement.count, nvlinks_most);
    ++stated_[size_t(statement.source)];
    statements_.push_back(std::move(statement));
    return ok();
}

Status Graph::push(Link link) {
    if (links_.size() == size_t(links_most))
        return fail(error::topology_invalid, "there are more than {} links", links_most);
    links_.push_back(std::move(link));
    return ok();
}

Status Graph::add_link(Link link) {
    const int nodes = int(nodes_.size());
    if (link.source < 0 || link.target < 0 || link.source >= nodes || link.target >= nodes)
        return fail(error::topology_invalid, "a link joins nodes {} and {}; there are {} nodes", link.source,
                    link.target, nodes);
    if (link.source == link.target) return fail(error::topology_invalid, "{} is linked with itself", name(link.source));
    if (!(link.bandwidth_gbs > 0) || !(link.latency_us >= 0) || link.count < 1)
        return fail(error::topology_invalid,
                    "the link from {} to {} has {} GB/s, {} us and width {}; the latency must not be "
                    "negative, and the others must be above 0",
                    name(link.source), name(link.target), link.bandwidth_gbs, link.latency_us, link.count);
    if (added_links_.size() == size_t(links_most))
        return fail(error::topology_invalid, "there are more than {} links", links_most);
    added_links_.push_back(std::move(link));
    return ok();
}

int Graph::find(int host, std::string_view busid) const {
    const auto found = by_busid_.find(busid_key(host, busid));
    return found == by_busid_.end() ? -1 : found->second;
}

int Graph::find_cpu(int host, int numaid) const {
    const auto found = by_busid_.find(cpu_key(host, numaid));
    return found == by_busid_.end() ? -1 : found->second;
}

int Graph::cpu_above(int index) const {
    while (index >= 0 && node(index).kind != NodeKind::cpu) index = node(index).parent;
    return index;
}

std::vector<int> Graph::of_kind(NodeKind kind) const {
    std::vector<int> found;
    for (int index = 0; index < int(nodes_.size()); ++index)
        if (node(index).kind == kind) found.push_back(index);
    return found;
}

std::string Graph::name(int index) const {
    const Node& it = node(index);
    std::string name = name_of(it.kind);
    const std::string busid = it.busid.empty() ? "" : fmt::format(" {}", it.busid);
    switch (it.kind) {
        case NodeKind::cpu: name += fmt::format(" {}", it.cpu.numaid); break;
        case NodeKind::gpu:
            name += it.gpu.dev == unknown ? busid : fmt::format(" {} ({})", it.gpu.dev, it.busid);
            break;
        case NodeKind::port:
            name += !it.port.name.empty() ? " " + it.port.name
                    : it.port.dev >= 0    ? fmt::format(" {}", it.port.dev)
                                          : fmt::format(" of {}", this->name(it.parent));
            break;
        case NodeKind::pci:
        case NodeKind::nic: name += busid; break;
        case NodeKind::nvswitch: name += it.gpu.domain.empty() ? "" : " of domain " + it.gpu.domain; break;
    }
    if (hosts_.size() > 1 && it.host >= 0) name += fmt::format(" of host {}", it.host);
    return name;
}

// The node that stands for all NVSwitches of the GPU's domain. A GPU distributes its traffic over its links to all of
// them, so a path through one of them would have only a share of the bandwidth.
Result<int> Graph::nvswitch_of(int gpu) {
    if (nodes_.size() == size_t(nodes_most))
        return fail(error::topology_invalid, "there are more than {} cpus and devices", nodes_most);
    const std::string domain = node(gpu).gpu.domain;
    const int host = domain.empty() && hosts_.size() < 2 ? node(gpu).host : -1;
    const auto [found, added] = by_busid_.try_emplace(nvswitch_key(host, domain), int(nodes_.size()));
    if (!added) return found->second;
    Node made;
    made.kind = NodeKind::nvswitch;
    made.host = host;
    made.gpu.domain = domain;
    push(std::move(made));
    return found->second;
}

void Graph::cut(int source, int target, LinkKind kind) {
    std::erase_if(links_, [&](Link& link) {
        if (link.kind != kind) return false;
        const bool forth = link.source == source && link.target == target;
        if (!forth && !(link.both_ways && link.source == target && link.target == source)) return false;
        if (!link.both_ways) return true;
        link.source = target;
        link.target = source;
        link.both_ways = false;
        return false;
    });
}

void Graph::disconnect() {
    links_.clear();
    const auto is_linked = [&](const Link& link) {
        return std::max(link.source, link.target) >= int(nodes_.size()) - 1;
    };
    while (!nodes_.empty() && nodes_.back().kind == NodeKind::nvswitch &&
           std::none_of(added_links_.begin(), added_links_.end(), is_linked)) {
        by_busid_.erase(nvswitch_key(nodes_.back().host, nodes_.back().gpu.domain));
        nodes_.pop_back();
        children_.pop_back();
        stated_.pop_back();
    }
}

}  // namespace weft::internal::topology
