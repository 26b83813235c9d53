// discover.hpp: this host as a graph, from hwloc, /sys, libibverbs and NVML, or one that hwloc's files and strings describe. Any
// source may be missing: what is known is used, and what is not is said.
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
    std::vector<std::string> notes;  // what is unknown, denied, slower than it could be, or allowed in part
    std::string foreign = {};        // not empty: WEFT_TOPO_FILE is of another machine; one of the notes
    std::string left_aside = {};     // not empty: why NCCL_TOPO_FILE is not used; one of the notes
};

// Where it is looked. Tests give trees of their own.
struct Sources {
    std::string sys = "/sys", proc = "/proc";
    std::string hwloc_library;  // as in WEFT_HWLOC_LIBRARY; hwloc sees this machine alone, not another `sys`
    std::optional<std::string> verbs_library;  // as in WEFT_VERBS_LIBRARY; none: RDMA devices are what /sys tells
    const nvml::Nvml* nvml = nullptr;          // null: GPUs are what /sys tells of them
};

// Libraries that take a while, tens of milliseconds where there are many devices.
struct Asked {
    bool nvml = true;   // GPUs
    bool verbs = true;  // RDMA devices, if there are any; /sys tells most of it
};

// Never a failure. Takes milliseconds; with many GPUs, or where hwloc is slow, tens of them. Reentrant.
Discovered discover(const Sources& sources);

// Played machines. weftInvalidArgument: what is wrong with the text; else there is no hwloc.
Result<Discovered> discover_xml(const std::string& library, const std::string& xml);
Result<Discovered> discover_synthetic(const std::string& library, const std::string& text);
// What a file describes, in NCCL's form, for which no hwloc is needed, or in hwloc's own. Errors likewise.
Result<Discovered> discover_file(const std::string& library, const std::string& xml);

// This machine as the options say: detected, and merged with WEFT_TOPO_FILE; written to WEFT_TOPO_DUMP_FILE. Errors:
// the user's file is not to be read, or cannot be written. If NCCL's variables name the files, that is a note, as is a
// file of another machine: they are then as unset.
Result<Discovered> discover_this_host(const Options& options, const Asked& asked = {});

// Writes the graph as a topology file, at once: who reads it meanwhile sees the old one or the new one.
Status write_topology_file(const Graph& graph, const std::string& file);

}  // namespace weft::internal::topology
