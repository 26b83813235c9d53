// nvml_fuzz.cpp: any answers of NVML make a graph that is the same when written and read again. The bytes are its
// answers, one call after the other.
//     build/tests/fuzz/nvml_fuzz corpus
#include <cstdlib>
#include <memory>

#include "src/drivers/library.hpp"
#include "tests/fuzz/graph_properties.hpp"
#include "topology/detect/hardware.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    using namespace weft::internal;
    static const std::unique_ptr<const nvml::Nvml> nvml(*nvml::Nvml::open(ANSWERING_NVML_LIBRARY));
    static const auto feed = reinterpret_cast<void (*)(const uint8_t*, size_t)>(
        DynamicLibrary::loaded(ANSWERING_NVML_LIBRARY).find("answering_nvml_feed"));
    feed(data, bytes);
    topology::Hardware hardware;
    topology::add_gpus(*nvml, hardware);
    const auto graph = topology::make_graph(hardware, {});
    if (!graph) std::abort();
    fuzz::check_graph(*graph);
    return 0;
}
