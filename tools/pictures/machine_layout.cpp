#include "tools/pictures/machine_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/pictures/node_label.hpp"

namespace weft::internal::tools {
namespace {

using namespace topology;

constexpr double gap = 10, padding = 9;
constexpr double drop = 20;          // from a node's text to its children
constexpr double title_height = 28;  // of each host
constexpr double bar_height = 18;    // of the bar that joins CPUs
constexpr double between_cpus = 64;  // room for the link and its bandwidth
constexpr double switch_height = 22;
constexpr double label_width_least = 54, label_width_most = 180;

// All drawn properties of a host except names: equal for equal hosts.
std::string signature(const Graph& graph, const std::vector<int>& nodes, const std::vector<std::string>& links) {
    std::string all;
    for (const int index : nodes) {
        const Node& node = graph.node(index);
        all += fmt::format("{} {} {} {} {};", int(node.kind), node.parent < 0 ? -1 : node.parent - nodes[0],
                           node.cpu.cores, node.gpu.sm, node.port.speed);
    }
    for (const std::string& link : links) all += link;
    return all;
}

}  // namespace

std::vector<EqualHosts> alike_hosts(const Graph& graph) {
    const size_t hosts = graph.hosts().size();
    std::vector<std::vector<int>> nodes(hosts);
    std::vector<std::vector<std::string>> links(hosts);
    std::vector<int> place(graph.nodes().size());
    for (size_t each = 0; each < graph.nodes().size(); ++each) {
        const int host = graph.nodes()[each].host;
        if (host < 0) continue;
        place[each] = int(nodes[size_t(host)].size());
        nodes[size_t(host)].push_back(int(each));
    }
    for (const Link& link : graph.links())
        for (const bool of_source : {true, false}) {
            const int host = graph.node(of_source ? link.source : link.target).host;
            const int other = graph.node(of_source ? link.target : link.source).host;
            if (host < 0 || (host == other && !of_source)) continue;
            links[size_t(host)].push_back(fmt::format("{} {} {} {} {};", int(link.kind), link.count,
                                                      host == other || of_source ? place[size_t(link.source)] : -1,
                                                      host == other || !of_source ? place[size_t(link.target)] : -1,
                                                      link.bandwidth_gbs));
        }
    std::vector<EqualHosts> groups;
    std::map<std::string, size_t> known;
    for (size_t host = 0; host < hosts; ++host) {
        std::sort(links[host].begin(), links[host].end());
        const auto [found, is_new] = known.try_emplace(signature(graph, nodes[host], links[host]), groups.size());
        if (is_new) groups.push_back({int(host), 0, nodes[host].size()});
        ++groups[found->second].count;
    }
    return groups;
}

MachineLayout::MachineLayout(const Graph& of, Point at) : graph(of) {
    const size_t nodes = graph.nodes().size();
    children.resize(nodes);
    boxes.resize(nodes);
    heads.resize(nodes);
    for (size_t each = 0; each < nodes; ++each)
        if (graph.nodes()[each].parent >= 0) children[size_t(graph.nodes()[each].parent)].push_back(int(each));
    const std::vector<EqualHosts> groups = alike_hosts(graph);
    std::vector<bool> hosts_drawn(graph.hosts().size());
    for (const EqualHosts& group : groups) hosts_drawn[size_t(group.host)] = true;
    bundle_links(hosts_drawn);
    for (const EqualHosts& group : groups) {
        place_host(group, at);
        at.x = hosts.back().box.right() + 2 * gap;
        bottom = std::max(bottom, hosts.back().box.bottom());
    }
    bottom = place_switches(-1, bottom);
}

void MachineLayout::bundle_links(const std::vector<bool>& hosts_drawn) {
    const auto in_picture = [&](int node) {
        const int host = graph.node(node).host;
        return host < 0 || hosts_drawn[size_t(host)];
    };
    for (const Link& link : graph.links()) {
        if (!in_picture(link.source) || !in_picture(link.target)) continue;
        Joint joint{link.source, link.target, link.kind};
        // Links of the tree keep their ends, the child first.
        if (graph.node(link.source).parent != link.target && link.source > link.target)
            std::swap(joint.source, joint.target);
        Bundle& bundle = bundles[joint];
        bundle.gbs = link.both_ways ? bundle.gbs + link.bandwidth_gbs : std::max(bundle.gbs, link.bandwidth_gbs);
        bundle.assumed = bundle.assumed || link.assumed;
    }
}

// Sizes nodes from the leaves up.
void MachineLayout::size(int node) {
    const std::vector<std::string> label = label_of(graph, node);
    Box& box = boxes[size_t(node)];
    double width = width_of(label[0], name_size);
    for (size_t line = 1; line < label.size(); ++line) width = std::max(width, width_of(label[line], fact_size));
    box.width = std::clamp(width + 12, label_width_least, label_width_most);
    box.height = 7 + line_height * double(label.size());
    heads[size_t(node)].height = box.height;
    if (children[size_t(node)].empty()) return;
    double inside = -gap, deepest = 0;
    for (const int child : children[size_t(node)]) {
        size(child);
        inside += boxes[size_t(child)].width + gap;
        deepest = std::max(deepest, boxes[size_t(child)].height);
    }
    box.width = std::max(box.width, inside + 2 * padding);
    box.height += drop + deepest + padding;
}

// Places nodes from the top down.
void MachineLayout::place(int node, Point at) {
    Box &box = boxes[size_t(node)], &head = heads[size_t(node)];
    box.x = at.x;
    box.y = at.y;
    head = {at.x, at.y, box.width, head.height};
    double inside = -gap;
    for (const int child : children[size_t(node)]) inside += boxes[size_t(child)].width + gap;
    double x = box.middle() - inside / 2;
    for (const int child : children[size_t(node)]) {
        place(child, {x, head.bottom() + drop});
        x += boxes[size_t(child)].width + gap;
    }
}

void MachineLayout::place_host(const EqualHosts& group, Point at) {
    DrawnHost drawn{group.host, group.count, {at.x, at.y, 150, 0}, {}, at.y + title_height, {}};
    for (const int cpu : graph.of_kind(NodeKind::cpu))
        if (graph.node(cpu).host == group.host) drawn.cpus.push_back(cpu);
    const bool has_bar = drawn.cpus.size() > 2;
    Point next{at.x + padding, at.y + title_height + (has_bar ? bar_height + drop : 0)};
    for (const int cpu : drawn.cpus) {
        size(cpu);
        place(cpu, next);
        const Box& box = boxes[size_t(cpu)];
        next.x = box.right() + (has_bar ? gap : between_cpus);
        drawn.box.width = std::max(drawn.box.width, box.right() + padding - at.x);
        drawn.floor = std::max(drawn.floor, box.bottom());
    }
    if (has_bar) drawn.bar = {at.x + padding, at.y + title_height, drawn.box.width - 2 * padding, bar_height};
    double depth = 0;
    for (const auto& [joint, bundle] : bundles)
        if (is_arc(joint) && graph.node(joint.source).host == group.host) depth = std::max(depth, depth_of(joint));
    drawn.box.height = place_switches(group.host, drawn.floor + depth) + padding - at.y;
    hosts.push_back(std::move(drawn));
}

// Places switches below `floor`, each as wide as the GPUs that it joins. Returns the lower end of the last one.
double MachineLayout::place_switches(int host, double floor) {
    for (const int node : graph.of_kind(NodeKind::nvswitch)) {
        if (graph.node(node).host != host) continue;
        Box& bar = heads[size_t(node)];
        for (const auto& [joint, bundle] : bundles) {
            if (joint.source != node && joint.target != node) continue;
            const Box& end = boxes[size_t(joint.source == node ? joint.target : joint.source)];
            const double right = std::max(bar.right(), end.right());
            bar.x = bar.width > 0 ? std::min(bar.x, end.x) : end.x;
            bar.width = right - bar.x;
        }
        bar.y = floor + drop + 4;
        bar.height = switch_height;
        boxes[size_t(node)] = bar;
        if (bar.width > 0) floor = bar.bottom();
    }
    return floor;
}

bool MachineLayout::is_arc(const Joint& joint) const {
    return joint.kind == LinkKind::nvlink && graph.node(joint.source).kind == NodeKind::gpu &&
           graph.node(joint.target).kind == NodeKind::gpu;
}

double MachineLayout::depth_of(const Joint& arc) const {
    return 18 + 0.13 * std::abs(boxes[size_t(arc.source)].middle() - boxes[size_t(arc.target)].middle());
}

const DrawnHost& MachineLayout::host_of(int node) const {
    return *std::find_if(hosts.begin(), hosts.end(),
                         [&](const DrawnHost& each) { return each.host == graph.node(node).host; });
}

}  // namespace weft::internal::tools
