#include "topology/description.hpp"

#include "topology/topology_xml.hpp"

namespace weft::topology {

std::string describe(Graph graph) {
    if (graph.hosts().size() != 1) return {};
    graph.name_host(0, "");
    for (size_t i = 0; i < graph.nodes().size(); ++i) {
        Node& node = graph.change(int(i));
        node.cpu.allowed.clear();
        node.gpu.rank = unknown;
        node.port.guid.clear();
        node.port.gid.clear();
    }
    return write_topology(graph);
}

}  // namespace weft::topology
