#include "topology/gpu_nics.hpp"

#include <algorithm>

#include "topology/model/paths.hpp"

namespace weft::internal::topology {

PathClass farthest(verbs::GdrLevel level) {
    switch (level) {
        case verbs::GdrLevel::loc: return PathClass::loc;
        case verbs::GdrLevel::pix: return PathClass::pix;
        case verbs::GdrLevel::pxb: return PathClass::p2c;
        case verbs::GdrLevel::phb: return PathClass::phb;
        case verbs::GdrLevel::sys: return PathClass::sys;
    }
    return PathClass::loc;
}

GpuNics nics_of_gpu(const Graph& graph, const std::string& gpu, std::span<const std::string> nics) {
    GpuNics found;
    const int source = gpu.empty() ? -1 : graph.find(0, normal_busid(gpu));
    if (source < 0 || graph.node(source).kind != NodeKind::gpu) return found;
    found.c2c = std::any_of(graph.links().begin(), graph.links().end(), [&](const Link& link) {
        return link.kind == LinkKind::c2c && (link.source == source || link.target == source);
    });
    const std::vector<Path> paths = Paths(graph, {.nvb = false, .net = false}).from(source);
    for (const int port : graph.of_kind(NodeKind::port)) {
        const Node& node = graph.node(port);
        const auto is_port = [&](const std::string& name) {
            return name == node.port.name ||
                   (node.parent >= 0 && !name.empty() && normal_busid(name) == graph.node(node.parent).busid);
        };
        const PathClass path_class = paths[size_t(port)].path_class;
        if (path_class >= PathClass::net || std::none_of(nics.begin(), nics.end(), is_port)) continue;
        found.path_class = found.path_class == PathClass::none ? path_class : std::max(found.path_class, path_class);
    }
    return found;
}

}  // namespace weft::internal::topology
