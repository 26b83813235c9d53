// graph_fuzz.cpp: any bytes as a graph file end in channels or in an error with its place. Channels are the same when
// written and read again.
//
//     build/tests/fuzz/graph_fuzz -dict=tests/fuzz/graph.dict corpus
#include <cstdlib>

#include "topology/files/graph_xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal::topology;
    const auto read = read_graphs({reinterpret_cast<const char*>(data), bytes});
    if (!read) {
        if (read.status().sentence().find("line ") != 0) std::abort();
        return 0;
    }
    const auto again = read_graphs(write_graphs(read->graphs));
    if (!again || again->graphs != read->graphs) std::abort();
    return 0;
}
