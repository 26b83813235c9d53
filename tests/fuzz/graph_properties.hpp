// graph_properties.hpp: the properties of every graph, from any source.
#pragma once
#include <cstdlib>

#include "topology/files/merge.hpp"
#include "topology/files/text.hpp"
#include "topology/files/topology_xml.hpp"

namespace weft::internal::fuzz {

// It is the same when it is written and read again, it can be merged with itself and shown.
inline void check_graph(const topology::Graph& graph) {
    using namespace topology;
    const auto again = read_topology(write_topology(graph));
    if (!again || !(again->graph == graph)) std::abort();
    if (graph.nodes().size() > 64) return;
    if (!merge(graph, graph)) std::abort();
    if (write_text(graph, {.pxn = true}).size() > size_t(1) << 24) std::abort();
}

}  // namespace weft::internal::fuzz
