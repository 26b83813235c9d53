// topology_fuzz.cpp: whatever bytes come, reading them as a topology file ends in a graph that is the same when it is
// written and read again, whose paths can be searched and which can be merged, or in a sentence with its place.
//     build/tests/fuzz/topology_fuzz -dict=tests/fuzz/topology.dict corpus tests/topology/machines
//     tests/topology/broken
#include <cstdlib>

#include "tests/fuzz/graph_properties.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal::topology;
    const auto read = read_topology({reinterpret_cast<const char*>(data), bytes});
    if (!read) {
        if (read.status().sentence().find("line ") != 0) std::abort();
        return 0;
    }
    weft::internal::fuzz::check_graph(read->graph);
    return 0;
}
