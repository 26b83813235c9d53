// discover.hpp: this host as a graph, from hwloc, /sys, libibverbs and NVML, or a machine that a file or string of
// hwloc describes. Each source may be missing; notes report what is unknown.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "src/base/options.hpp"
#include "src/base/result.hpp"
#include "src/drivers/nvml/nvml.hpp"
#include "topology/model/graph.hpp"

namespace weft::internal::topology {

struct Discovered {
    Graph graph;                     // connected
    std::vector<std::string> notes;  // what is unknown, denied, slower than possible, or allowed only in part
    std::string foreign = {};        // not empty: WEFT_TOPO_FILE is of another machine; this is one of the notes
    std::string left_aside = {};     // not empty: the reason why NCCL_TOPO_FILE is not used; this is one of the notes
};

// The sources. Tests pass their own folders.
struct Sources {
    std::string sys = "/sys", proc = "/proc";
    std::string hwloc_library;                 // as WEFT_HWLOC_LIBRARY; hwloc sees only this machine, not another `sys`
    std::optional<std::string> verbs_library;  // as WEFT_VERBS_LIBRARY; none: RDMA devices only from /sys
    const nvml::Nvml* nvml = nullptr;          // null: GPUs only from /sys
};

// Libraries that take tens of milliseconds with many devices.
struct Asked {
    bool nvml = true;   // GPUs
    bool verbs = true;  // RDMA devices, if there are any; most facts are also in /sys
};

// Never fails. Takes milliseconds; with many GPUs or a slow hwloc tens of them. Reentrant.
Discovered discover(const Sources& sources);

// Described machines. weftInvalidArgument: the fault in the text; otherwise hwloc is missing.
Result<Discovered> discover_xml(const std::string& library, const std::string& xml);
Result<Discovered> discover_synthetic(const std::string& library, const std::string& text);
// A file in NCCL's form, which needs no hwloc, or in hwloc's. Errors as above.
Result<Discovered> discover_file(const std::string& library, const std::string& xml);

// This machine as the options say: detected, merged with WEFT_TOPO_FILE, and written to WEFT_TOPO_DUMP_FILE. Fails if
// the user's file cannot be read or written. If NCCL's variables name the file, a failure is only a note, and so is a
// file of another machine; the variable then has no effect.
Result<Discovered> discover_this_host(const Options& options, const Asked& asked = {});

// Writes the graph as a topology file in one step: a concurrent reader sees the old or the new file.
Status write_topology_file(const Graph& graph, const std::string& file);

}  // namespace weft::internal::topology
