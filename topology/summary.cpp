#include "topology/summary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "topology/files/text.hpp"
#include "topology/model/paths.hpp"

namespace weft::internal::topology {

namespace {

constexpr size_t gpus_most = 64;  // GPUs whose paths are counted

std::string counted(size_t count, const std::string& what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string processors(const Graph& graph) {
    std::set<std::pair<int, int>> packages;
    size_t cores = 0;
    bool cores_known = true;
    const std::vector<int> cpus = graph.of_kind(NodeKind::cpu);
    for (const int index : cpus) {
        const Node& node = graph.node(index);
        if (node.cpu.package != unknown) packages.insert({node.host, node.cpu.package});
        cores_known = cores_known && node.cpu.cores != unknown;
        cores += size_t(std::max(0, node.cpu.cores));
    }
    std::string text = packages.empty() ? "" : counted(packages.size(), "package") + ", ";
    text += counted(cpus.size(), "NUMA domain");
    if (cores_known) text += ", " + counted(cores, "core");
    // Usually all are equal.
    if (!cpus.empty())
        for (const Cache& it : graph.node(cpus[0]).cpu.caches) text += ", " + cache_text(it);
    if (cpus.size() > 1 && !graph.node(cpus[0]).cpu.caches.empty()) text += " in the first domain";
    return text;
}

std::string gpus(const Graph& graph) {
    std::vector<int> all = graph.of_kind(NodeKind::gpu);
    if (all.empty()) return "no GPU";
    std::set<int> sms;
    for (const int gpu : all) sms.insert(graph.node(gpu).gpu.sm);
    std::string text = counted(all.size(), "GPU");
    if (sms.size() == 1 && *sms.begin() != unknown) text += fmt::format(" of sm {}", *sms.begin());
    if (all.size() == 1) return text;
    if (all.size() > gpus_most) all.resize(gpus_most);
    struct GpuPairs {
        int count = 0;
        double least_gbs = 0;
    };
    std::map<PathClass, GpuPairs> classes;
    const Paths paths(graph);
    for (const int source : all) {
        const std::vector<Path> found = paths.from(source);
        for (const int target : all) {
            if (target <= source) continue;
            const Path& path = found[size_t(target)];
            GpuPairs& pairs = classes[path.path_class];
            pairs.least_gbs = pairs.count++ == 0 ? path.bandwidth_gbs : std::min(pairs.least_gbs, path.bandwidth_gbs);
        }
    }
    const bool alike = classes.size() == 1;
    for (const auto& [path_class, pairs] : classes)
        text += fmt::format(", {} {}, {:.3g} GB/s", alike ? "all pairs" : counted(size_t(pairs.count), "pair"),
                            name_of(path_class), pairs.least_gbs);
    return text;
}

std::string nics(const Graph& graph) {
    constexpr size_t shown_most = 8;
    std::vector<int> all = graph.of_kind(NodeKind::port);
    if (all.empty()) return "no network";
    std::stable_sort(all.begin(), all.end(),
                     [&](int one, int other) { return graph.node(one).port.dev < graph.node(other).port.dev; });
    std::string text = counted(all.size(), "port") + ": ";
    for (size_t i = 0; i < all.size() && i < shown_most; ++i) {
        const Port& port = graph.node(all[i]).port;
        text +=
            fmt::format("{}{}{}", i == 0 ? "" : ", ", port.name,
                        port.speed == unknown ? " (speed unknown)" : fmt::format(" {:.3g} Gb/s", port.speed / 1000.0));
    }
    return text + (all.size() > shown_most ? fmt::format(", and {} more", all.size() - shown_most) : "");
}

}  // namespace

std::vector<std::string> summarize(const Graph& graph) { return {processors(graph), gpus(graph), nics(graph)}; }

}  // namespace weft::internal::topology
