#include "topology/model/graph.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "topology/model/notes.hpp"
#include "topology/model/speeds.hpp"
#include "topology/model/unique_numbers.hpp"

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

std::string at(const SourceLine& source_line) {
    return source_line.line > 0 ? fmt::format("line {}: ", source_line.line) : std::string();
}

}  // namespace

const char* name_of(NodeKind kind) {
    switch (kind) {
        case NodeKind::cpu: return "cpu";
        case NodeKind::pci: return "pci";
        case NodeKind::gpu: return "gpu";
        case NodeKind::nic: return "nic";
        case NodeKind::port: return "port";
        case NodeKind::nvswitch: return "nvswitch";
    }
    return "?";
}

const char* name_of(LinkKind kind) {
    switch (kind) {
        case LinkKind::local: return "local";
        case LinkKind::nvlink: return "nvlink";
        case LinkKind::c2c: return "c2c";
        case LinkKind::pci: return "pci";
        case LinkKind::sys: return "sys";
        case LinkKind::net: return "net";
    }
    return "?";
}

NodeKind kind_of(const Pci& pci) {
    const std::string group = pci.device_class.substr(0, 4), subclass = pci.device_class.substr(0, 6);
    if (group == "0x02") return NodeKind::nic;
    if (group != "0x03") return NodeKind::pci;
    if (subclass == "0x0302") return NodeKind::gpu;
    std::string vendor = pci.vendor, device = pci.device;
    for (std::string* text : {&vendor, &device})
        for (char& letter : *text) letter = char(std::tolower(static_cast<unsigned char>(letter)));
    // GPUs for consoles: Rage XL and ES1000.
    for (const char* console : {"0x4752", "0x515e", "0x5969"})
        if (vendor == "0x1002" && device == console) return NodeKind::pci;
    if (vendor.empty()) return subclass == "0x0300" ? NodeKind::pci : NodeKind::gpu;
    return vendor == "0x10de" || vendor == "0x1002" ? NodeKind::gpu : NodeKind::pci;
}

std::string normal_busid(std::string_view text) {
    // Digits of domain, bus and device, and the function.
    constexpr const char* separators = "::.";
    size_t digits[4] = {}, part = 0;
    std::string result;
    for (const char letter : text) {
        const char lower = letter >= 'A' && letter <= 'F' ? char(letter - 'A' + 'a') : letter;
        const bool digit = (lower >= '0' && lower <= '9') || (lower >= 'a' && lower <= 'f');
        if (digit) {
            if (++digits[part] > 8) return {};
        } else if (part < 3 && lower == separators[part]) {
            ++part;
        } else {
            return {};
        }
        result += lower;
    }
    if (part != 3 || digits[0] < 4 || digits[1] != 2 || digits[2] != 2 || digits[3] != 1) return {};
    size_t zeros = 0;
    while (digits[0] - zeros > 4 && result[zeros] == '0') ++zeros;
    return result.substr(zeros);
}

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

// A rank names one device. An index may name several: parts of a GPU, or devices that several processes counted.
Status Graph::check_indices(std::vector<std::string>& notes) {
    UniqueNumbers claims;
    std::map<std::tuple<NodeKind, int, int>, int> first;
    sharing_dev_.clear();
    for (int index = 0; index < int(nodes_.size()); ++index) {
        const Node& it = node(index);
        const int dev = it.kind == NodeKind::gpu ? it.gpu.dev : it.kind == NodeKind::port ? it.port.dev : unknown;
        if (dev != unknown) {
            const auto [has, added] = first.try_emplace({it.kind, it.host, dev}, index);
            if (!added) {
                sharing_dev_.insert({has->second, index});
                say(notes, "{}{} has the dev of {}: {} distinguishes them", at(it.source_line), name(index),
                    name(has->second), it.kind == NodeKind::gpu ? "the bus id" : "the place in the file");
            }
        }
        if (it.kind != NodeKind::gpu) continue;
        for (size_t part = 0; part <= it.parts.size(); ++part) {
            const int rank = part == 0 ? it.gpu.rank : it.parts[part - 1].rank;
            if (!claims.rank(rank))
                return fail(error::topology_invalid, "{}two gpus have rank {}; each gpu has its own rank",
                            at(it.source_line), rank);
        }
    }
    return ok();
}

// The node that stands for all NVSwitches of the GPU's domain. A GPU distributes its traffic over its links to all of
// them, so a path through one of them would have only a share of the bandwidth.
int Graph::nvswitch_of(int gpu) {
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

Status Graph::link_statements(std::vector<std::string>& notes) {
    // NVLinks between two GPUs, stated by both ends: the links from the first to the second.
    struct Stated {
        int count = 0;
        SourceLine source_line;
    };
    std::map<std::pair<int, int>, Stated> between;
    std::set<std::pair<int, int>> halves;
    for (size_t i = 0; i < statements_.size(); ++i) {
        const Statement& it = statements_[i];
        const int host = node(it.source).host;
        const int cpu = cpu_above(it.source);
        Link link{it.kind, it.source, -1, true, it.count, 0, latency_us(it.kind), false, {}};
        if (it.kind == LinkKind::c2c) {
            link.target = cpu;
            link.bandwidth_gbs = double(it.bandwidth_mbs) * it.count / 1000;
            WEFT_TRY(push(std::move(link)));
            continue;
        }
        const int target = find(host, it.target);
        if (target == it.source) {
            say(notes, "{}{} has a link to itself: it is ignored", at(it.source_line), name(it.source));
            continue;
        }
        if (it.kind == LinkKind::local) {
            if (target < 0 || node(target).kind != NodeKind::pci) {
                say(notes,
                    "{}the pcilink of {} leads to {}, which is not a PCI switch of the host: it is "
                    "ignored; correct its target, or add the switch",
                    at(it.source_line), name(it.source), it.target);
                continue;
            }
            // Both halves state it.
            if (!halves.insert(std::minmax(it.source, target)).second) continue;
            link.target = target;
            link.bandwidth_gbs = local_gbs;
            WEFT_TRY(push(std::move(link)));
            continue;
        }
        const Speed speed = nvlink_speed(node(it.source).gpu, it.count);
        link.bandwidth_gbs = speed.bandwidth_gbs;
        link.assumed = speed.assumed;
        if (it.target_class == "0x068001") {
            link.target = cpu;
        } else if (it.target_class == "0x068000" || (target >= 0 && node(target).pci.device_class == "0x068000")) {
            link.plane = it.target;
            if (nodes_.size() == size_t(nodes_most))
                return fail(error::topology_invalid, "there are more than {} cpus and devices", nodes_most);
            link.target = nvswitch_of(it.source);
        } else if (target >= 0 && node(target).kind == NodeKind::gpu) {
            Stated& stated = between[{it.source, target}];
            stated.count += it.count;
            stated.source_line = it.source_line;
            continue;
        } else {
            say(notes,
                "{}the nvlink of {} leads to {}, which is not a GPU of the host: it is ignored; "
                "correct its target, or add the GPU",
                at(it.source_line), name(it.source), it.target);
            continue;
        }
        WEFT_TRY(push(std::move(link)));
    }
    for (const auto& [ends, stated] : between) {
        const auto [source, target] = ends;
        const auto back = between.find({target, source});
        if (back != between.end() && source > target) continue;  // done with the other end's statement
        int count = stated.count;
        if (back == between.end()) {
            say(notes,
                "{}{} states an nvlink to {}, which does not state it: taken for both ways; "
                "each of the two should state it",
                at(stated.source_line), name(source), name(target));
        } else if (back->second.count != count) {
            say(notes, "{}{} states {} nvlinks to {}, which states {}: the lesser number is taken",
                at(stated.source_line), name(source), count, name(target), back->second.count);
            count = std::min(count, back->second.count);
        }
        const Speed a = nvlink_speed(node(source).gpu, count), b = nvlink_speed(node(target).gpu, count);
        WEFT_TRY(push({LinkKind::nvlink,
                       source,
                       target,
                       true,
                       count,
                       std::min(a.bandwidth_gbs, b.bandwidth_gbs),
                       latency_us(LinkKind::nvlink),
                       a.assumed || b.assumed,
                       {}}));
    }
    return ok();
}

std::string Graph::nvswitch_key(int host, const std::string& domain) const {
    return fmt::format("{} nvswitch {}", host, domain);
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

Status Graph::connect(std::vector<std::string>& notes) {
    disconnect();
    WEFT_TRY(check_indices(notes));
    std::vector<std::vector<int>> cpus(hosts_.size());
    for (int index = 0; index < int(nodes_.size()); ++index) {
        const Node& it = node(index);
        if (it.kind == NodeKind::cpu) {
            for (const int other : cpus[size_t(it.host)]) {
                const Speed speed = sys_speed(node(other).cpu, it.cpu);
                WEFT_TRY(push({LinkKind::sys,
                               other,
                               index,
                               true,
                               1,
                               speed.bandwidth_gbs,
                               latency_us(LinkKind::sys),
                               speed.assumed,
                               {}}));
            }
            cpus[size_t(it.host)].push_back(index);
        }
        if (it.parent < 0) continue;
        Link link{LinkKind::pci, index, it.parent, true, 1, 0, 0, false, {}};
        Speed speed;
        if (it.kind == NodeKind::port) {
            link.kind = LinkKind::net;
            speed = port_speed(it.port);
        } else if (it.busid.empty()) {
            speed = {local_gbs, false};  // a NIC of software
        } else {
            speed = pci_speed(it.pci);
            link.count = it.pci.link_width > 0 ? it.pci.link_width : 16;
        }
        link.bandwidth_gbs = speed.bandwidth_gbs;
        link.assumed = speed.assumed;
        link.latency_us = latency_us(link.kind);
        WEFT_TRY(push(std::move(link)));
    }
    WEFT_TRY(link_statements(notes));
    for (const Link& link : added_links_) WEFT_TRY(push(link));
    return ok();
}

}  // namespace weft::internal::topology
