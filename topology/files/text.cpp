#include "topology/files/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <vector>

namespace weft::internal::topology {

namespace {

// Limits of the matrix: wider tables are unreadable, and each column needs a search, which takes long in a large graph.
constexpr size_t columns_most = 96, columns_of_large = 16, large_nodes = 4'096;

std::string bandwidth(double gbs, bool assumed) {
    // Whole numbers from 100 on, because the values have three significant digits.
    return fmt::format("{}{}", assumed ? "~" : "",
                       gbs >= 100 ? fmt::format("{:.0f}", gbs) : fmt::format("{:.3g}", gbs));
}

std::string known(const char* what, int value) {
    return value == unknown ? std::string() : fmt::format(", {} {}", what, value);
}
std::string known(const std::string& value) { return value.empty() ? std::string() : ", " + value; }

std::string size_text(int64_t bytes) {
    const bool mebibytes = bytes >= 1 << 20;
    const double size = double(bytes) / (mebibytes ? 1 << 20 : 1 << 10);
    return fmt::format("{:.4g} {}", size, mebibytes ? "MiB" : "KiB");
}

std::string facts_of(const Node& node) {
    std::string facts;
    switch (node.kind) {
        case NodeKind::cpu:
            facts = known(node.cpu.arch) + known(node.cpu.vendor) + known("family", node.cpu.family) +
                    known("model", node.cpu.model);
            facts += known("package", node.cpu.package);
            if (node.cpu.cores != unknown)
                facts += fmt::format(", {} core{}", node.cpu.cores, node.cpu.cores == 1 ? "" : "s");
            for (const Cache& it : node.cpu.caches) facts += ", " + cache_text(it);
            if (!node.cpu.affinity.empty()) facts += ", affinity " + node.cpu.affinity;
            if (!node.cpu.allowed.empty()) facts += ", of them allowed " + node.cpu.allowed;
            break;
        case NodeKind::gpu: facts = known("sm", node.gpu.sm) + known("rank", node.gpu.rank); break;
        case NodeKind::port:
            facts = known("dev", node.port.dev) + known("port", node.port.number) + known(node.port.link_layer) +
                    known(node.port.interface) + (node.port.gid.empty() ? "" : ", GID " + node.port.gid) +
                    (node.port.gdr == 1 ? ", GPUDirect" : "");
            break;
        default: break;
    }
    if (!node.busid.empty()) {
        facts += node.pci.link_speed.empty() ? ", speed unknown" : ", " + node.pci.link_speed;
        facts += node.pci.link_width == unknown ? ", width unknown" : fmt::format(" x{}", node.pci.link_width);
        if (!node.pci.virtual_of.empty()) facts += ", a virtual function of " + node.pci.virtual_of;
    }
    return facts.substr(std::min<size_t>(2, facts.size()));
}

// Short, for the head of a column.
std::string column_name(const Graph& graph, int index) {
    const Node& node = graph.node(index);
    std::string name = graph.name(index);
    if (node.kind == NodeKind::cpu && node.cpu.numaid != unknown) name = fmt::format("cpu{}", node.cpu.numaid);
    if (node.kind == NodeKind::gpu)
        name = node.gpu.dev == unknown || graph.shares_dev(index) ? node.busid : fmt::format("gpu{}", node.gpu.dev);
    if (node.kind == NodeKind::port && !node.port.name.empty()) name = node.port.name;
    if (node.kind == NodeKind::nic) name = "nic " + node.busid;
    return graph.hosts().size() > 1 ? fmt::format("{}:{}", node.host, name.substr(0, name.find(" of host"))) : name;
}

class TextWriter {
  public:
    TextWriter(const Graph& graph, PathOptions options) : graph_(graph), options_(options) {}
    std::string write() {
        children_.resize(graph_.nodes().size());
        above_.resize(graph_.nodes().size());
        for (size_t i = 0; i < graph_.nodes().size(); ++i)
            if (graph_.nodes()[i].parent >= 0) children_[size_t(graph_.nodes()[i].parent)].push_back(int(i));
        cpus_.resize(graph_.hosts().size());
        for (const int cpu : graph_.of_kind(NodeKind::cpu)) cpus_[size_t(graph_.node(cpu).host)].push_back(cpu);
        for (const Link& link : graph_.links()) {
            const Node& source = graph_.node(link.source);
            const bool of_tree =
                source.parent == link.target && (link.kind == LinkKind::pci || link.kind == LinkKind::net);
            (of_tree ? above_[size_t(link.source)] : across_.emplace_back()) = &link;
        }
        write_trees();
        write_links();
        write_matrix();
        return std::move(text_);
    }

  private:
    void write_trees() {
        for (size_t host = 0; host < graph_.hosts().size(); ++host) {
            const std::string& hash = graph_.hosts()[host];
            text_ += fmt::format("host {}{}\n", host, hash.empty() ? "" : " (" + hash + ")");
            for (const int cpu : cpus_[host]) write_tree(cpu);
        }
    }
    void write_tree(int root) {
        std::vector<std::pair<int, size_t>> left{{root, 1}};  // with its depth
        while (!left.empty()) {
            const auto [index, depth] = left.back();
            left.pop_back();
            std::string name = graph_.name(index);
            name = name.substr(0, name.find(" of host"));
            text_ += fmt::format("{:{}}{}", "", 2 * depth, name);
            const std::string facts = facts_of(graph_.node(index));
            if (!facts.empty()) text_ += ": " + facts;
            if (const Link* link = above_[size_t(index)])
                text_ += fmt::format("{}{} GB/s", facts.empty() ? ": " : ", ",
                                     bandwidth(link->bandwidth_gbs, link->assumed));
            text_ += '\n';
            const auto& children = children_[size_t(index)];
            for (auto child = children.rbegin(); child != children.rend(); ++child) left.push_back({*child, depth + 1});
        }
    }
    void write_links() {
        if (across_.empty()) return;
        text_ += "links\n";
        for (const Link* link : across_) {
            text_ += fmt::format("  {} {} {}: ", graph_.name(link->source), link->both_ways ? "-" : "->",
                                 graph_.name(link->target));
            text_ += link->kind == LinkKind::nvlink || link->kind == LinkKind::c2c
                         ? fmt::format("{} {}{}", link->count, link->kind == LinkKind::nvlink ? "NVLink" : "C2C link",
                                       link->count == 1 ? "" : "s")
                         : std::string(name_of(link->kind));
            if (!link->plane.empty()) text_ += " to " + link->plane;
            text_ += link->kind == LinkKind::local
                         ? "\n"
                         : fmt::format(", {} GB/s\n", bandwidth(link->bandwidth_gbs, link->assumed));
        }
    }
    void write_matrix() {
        std::vector<int> ends;
        for (const NodeKind kind : {NodeKind::gpu, NodeKind::port, NodeKind::nic, NodeKind::cpu}) {
            const size_t begin = ends.size();
            for (const int node : graph_.of_kind(kind))
                if (kind != NodeKind::nic || graph_.children(node) == 0) ends.push_back(node);
            // By their indices, if known.
            std::stable_sort(ends.begin() + std::ptrdiff_t(begin), ends.end(), [&](int one, int other) {
                const Node &a = graph_.node(one), &b = graph_.node(other);
                return std::tuple(a.host, a.gpu.dev, a.port.dev) < std::tuple(b.host, b.gpu.dev, b.port.dev);
            });
        }
        if (ends.empty()) return;
        const size_t all = ends.size();
        ends.resize(std::min(all, graph_.nodes().size() > large_nodes ? columns_of_large : columns_most));
        std::vector<std::vector<std::string>> table(ends.size() + 1);
        table[0].emplace_back();
        for (const int end : ends) table[0].push_back(column_name(graph_, end));
        const Paths paths(graph_, options_);
        for (size_t row = 0; row < ends.size(); ++row) {
            const std::vector<Path> found = paths.from(ends[row]);
            table[row + 1].push_back(table[0][row + 1]);
            for (const int end : ends) {
                const Path& path = found[size_t(end)];
                const bool alone = end == ends[row] || path.path_class == PathClass::none;
                table[row + 1].push_back(end == ends[row] ? "X"
                                         : alone          ? name_of(path.path_class)
                                                          : fmt::format("{} {}", name_of(path.path_class),
                                                                        bandwidth(path.bandwidth_gbs, path.assumed)));
            }
        }
        std::vector<size_t> widths(ends.size() + 1);
        for (const auto& row : table)
            for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
        text_ += "paths, and GB/s of their narrowest links\n";
        for (const auto& row : table) {
            std::string line = " ";
            for (size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], widths[i] + 1);
            text_ += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
        }
        for (const std::string& note : paths.notes()) text_ += fmt::format("  {}\n", note);
        if (all > ends.size()) text_ += fmt::format("  of {} GPUs, ports and cpus the first {}\n", all, ends.size());
        text_ +=
            "NVL NVLink, NVB NVLink through a GPU, C2C NVLink-C2C, PIX one PCI switch at most, PXB several,\n"
            "P2C C2C and a cpu's NIC, PXN through another GPU's NIC, PHB through a cpu, SYS between cpus, NET the "
            "network, - no way;\n"
            "~ rests on something unknown\n";
    }

    const Graph& graph_;
    PathOptions options_;
    std::vector<std::vector<int>> children_, cpus_;  // of each node; of each host
    std::vector<const Link*> above_, across_;
    std::string text_;
};

}  // namespace

std::string cache_text(const Cache& cache) {
    return fmt::format("{} x L{} {} of {} thread{}", cache.count, cache.level, size_text(cache.bytes), cache.threads,
                       cache.threads == 1 ? "" : "s");
}

std::string write_text(const Graph& graph, PathOptions options) { return TextWriter(graph, options).write(); }

}  // namespace weft::internal::topology
