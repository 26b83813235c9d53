// topology_fuzz.cpp: whatever bytes come, reading them as a topology file ends in a graph that is the same when it is
// written and read again, whose paths can be searched and which can be merged, or in a sentence with its place.
//     build/tests/fuzz/topology_fuzz -dict=tests/fuzz/topology.dict corpus tests/topology/machines
//     tests/topology/broken
#include <cstdlib>

#include "topology/merge.hpp"
#include "topology/text.hpp"
#include "topology/topology_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::topology;
    const auto read = read_topology({reinterpret_cast<const char*>(data), bytes});
    if (!read) {
        if (read.status().sentence().find("line ") != 0) std::abort();
        return 0;
    }
    const auto again = read_topology(write_topology(read->graph));
    if (!again || !(again->graph == read->graph)) std::abort();
    if (read->graph.nodes().size() > 64) return 0;
    if (!merge(read->graph, read->graph)) std::abort();
    if (write_text(read->graph, {.pxn = true}).size() > size_t(1) << 24) std::abort();
    return 0;
}
