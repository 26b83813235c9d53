#include "topology/host_graph.hpp"

#include <mutex>
#include <utility>

#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "topology/detect/discover.hpp"

namespace weft::internal::topology {

const Graph& host_graph(bool gpus) {
    struct Known {
        std::once_flag once;
        Graph graph;
    };
    static PerProcess<Known> processes[2];
    Known& known = processes[gpus ? 1 : 0].get();
    std::call_once(known.once, [&] {
        Options wanted = options();
        wanted.topo_dump_file.clear();
        if (auto found = discover_this_host(wanted, {.nvml = gpus, .verbs = false}))
            known.graph = std::move(found->graph);
    });
    return known.graph;
}

}  // namespace weft::internal::topology
