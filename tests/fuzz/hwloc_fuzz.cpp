// hwloc_fuzz.cpp: any bytes as hwloc's XML, or as a description such as "core:2 pu:1", end in a graph or in an error. A
// graph is the same when written and read again. hwloc itself reads the texts that Weft accepts.
//
//     build/tests/fuzz/hwloc_fuzz -dict=tests/fuzz/hwloc.dict corpus tests/topology/hwloc tests/fuzz/hwloc
#include <cstdlib>

#include "tests/fuzz/graph_properties.hpp"
#include "topology/detect/discover.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal::topology;
    const std::string text(reinterpret_cast<const char*>(data), bytes);
    const bool xml = text.find('<') < 8;
    const auto found = xml ? discover_xml("", text) : discover_synthetic("", text);
    if (!found) {
        if (found.status().sentence().empty()) std::abort();
        return 0;
    }
    weft::internal::fuzz::check_graph(found->graph);
    return 0;
}
