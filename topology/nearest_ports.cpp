#include "topology/nearest_ports.hpp"

#include <mutex>
#include <utility>

#include "src/base/cpu.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "topology/detect/discover.hpp"

namespace weft::internal::topology {

std::vector<int> nearest_ports(std::span<const NicPort> ports, const std::string& gpu, int rank) {
    struct Known {
        std::once_flag once;
        Graph graph;  // empty: unknown
    };
    static PerProcess<Known> processes;
    Known& known = processes.get();
    std::call_once(known.once, [&] {
        Options wanted = options();
        wanted.topo_dump_file.clear();
        if (auto found = discover_this_host(wanted, {.nvml = false, .verbs = false}))
            known.graph = std::move(found->graph);
    });
    return order_of_ports(known.graph, ports, {.gpu = gpu, .cores = CpuMask::from_set(allowed_cpus()), .rank = rank});
}

}  // namespace weft::internal::topology
