// topology_fuzz.cpp: any bytes as a topology file end in a graph or in an error with its place. A graph is the same
// when written and read again; its paths can be searched, and it can be merged.
//
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
