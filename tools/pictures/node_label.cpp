#include "tools/pictures/node_label.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::internal::tools {
namespace {

using namespace topology;

// The size of the last level of cache, and the number of such caches.
std::string last_cache(const std::vector<Cache>& caches) {
    const auto last = std::max_element(caches.begin(), caches.end(),
                                       [](const Cache& one, const Cache& other) { return one.level < other.level; });
    if (last == caches.end()) return "";
    const bool large = last->bytes >= 1 << 20;
    return fmt::format("{}L{} {:.4g} {}", last->count > 1 ? fmt::format("{} x ", last->count) : "", last->level,
                       double(last->bytes) / (large ? 1 << 20 : 1 << 10), large ? "MiB" : "KiB");
}

std::string without_first_domain(const std::string& busid) {
    return busid.starts_with("0000:") ? busid.substr(5) : busid;
}

std::string name_and_number(const char* name, int number) {
    return number == unknown ? name : fmt::format("{} {}", name, number);
}

}  // namespace

bool is_no_device(const Graph& graph, int node) {
    return graph.node(node).kind == NodeKind::nic && graph.node(node).busid.empty();
}

std::vector<std::string> label_of(const Graph& graph, int index) {
    const Node& node = graph.node(index);
    std::vector<std::string> lines;
    switch (node.kind) {
        case NodeKind::cpu: {
            lines.push_back(name_and_number("cpu", node.cpu.numaid));
            if (node.cpu.cores != unknown)
                lines.push_back(fmt::format("{} core{}", node.cpu.cores, node.cpu.cores == 1 ? "" : "s"));
            const std::string cache = last_cache(node.cpu.caches);
            if (!cache.empty()) lines.push_back(cache);
            if (lines.size() == 1 && !node.cpu.arch.empty()) lines.push_back(node.cpu.arch);
            break;
        }
        case NodeKind::gpu:
            lines.push_back(name_and_number("gpu", node.gpu.dev));
            if (node.gpu.sm != unknown) lines.push_back(fmt::format("sm {}", node.gpu.sm));
            break;
        case NodeKind::pci: lines.emplace_back(graph.children(index) > 0 ? "PCI switch" : "PCI device"); break;
        case NodeKind::nic: lines.emplace_back(node.busid.empty() ? "no device" : "NIC"); break;
        case NodeKind::nvswitch:
            lines.push_back(node.gpu.domain.empty() ? "NVSwitch" : "NVSwitch of " + node.gpu.domain);
            break;
        case NodeKind::port:
            lines.push_back(node.port.name.empty() ? name_and_number("port", node.port.dev) : node.port.name);
            if (node.port.speed != unknown) lines.push_back(fmt::format("{:.4g} Gb/s", node.port.speed / 1000.0));
            break;
    }
    if (!node.busid.empty()) lines.push_back(without_first_domain(node.busid));
    return lines;
}

}  // namespace weft::internal::tools
