#include "topology/detect/discover.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include "src/base/file.hpp"
#include "src/xml/xml.hpp"
#include "topology/detect/container.hpp"
#include "topology/detect/hardware.hpp"
#include "topology/files/merge.hpp"
#include "topology/files/topology_xml.hpp"

namespace weft::internal::topology {

namespace {

Discovered finish(Hardware& hardware, const CpuMask& allowed) {
    Discovered found;
    Result<Graph> graph = make_graph(hardware, allowed);
    if (graph) {
        found.graph = std::move(*graph);
    } else {
        // More than a graph can hold, or nonsense. The processors alone are better than nothing.
        Hardware flat;
        flat.host = hardware.host;
        flat.arch = hardware.arch;
        flat.vendor = hardware.vendor;
        flat.family = hardware.family;
        flat.model = hardware.model;
        flat.online = hardware.online;
        hardware.notes.push_back(
            fmt::format("the detected parts make no graph: {}; only processors are known", graph.status().sentence()));
        if (Result<Graph> least = make_graph(flat, allowed)) found.graph = std::move(*least);
    }
    found.notes = std::move(hardware.notes);
    return found;
}

// A tree of another place is one of a test.
bool is_this_machine(const Sources& sources) { return sources.sys == "/sys"; }

// Of the calling thread. The C library's mask has a fixed number of threads, this one has not. Empty: unknown.
CpuMask allowed_threads(SystemFiles& proc, const Sources& sources) {
    const std::string status = proc.text("thread-self/status").value_or(""), key = "Cpus_allowed_list:\t";
    const size_t begin = status.find(key);
    if (begin != std::string::npos) {
        const size_t list = begin + key.size();
        return CpuMask::from_list(status.substr(list, status.find('\n', list) - list));
    }
    return is_this_machine(sources) ? CpuMask::from_set(allowed_cpus()) : CpuMask();
}

Result<Discovered> play(Result<hwloc::HwlocTopology> machine) {
    if (!machine) return machine.take_status();
    Hardware hardware;
    add_hwloc(*machine, hardware);
    Result<Graph> graph = make_graph(hardware, {});
    if (!graph) return graph.take_status();
    return Discovered{std::move(*graph), std::move(hardware.notes)};
}

}  // namespace

Discovered discover(const Sources& sources) {
    SystemFiles sys(sources.sys), proc(sources.proc);
    Hardware hardware;
    if (is_this_machine(sources)) {
        if (const auto machine = hwloc::this_machine(sources.hwloc_library))
            add_hwloc(*machine, hardware);
        else
            hardware.notes.push_back(
                fmt::format("{}: the caches and devices are those of {}", machine.status().sentence(), sources.sys));
    }
    add_cpus(sys, proc, hardware);
    add_pci_devices(sys, hardware);
    add_interfaces(sys, hardware);
    if (sources.verbs_library) {
        if (const auto devices = verbs::devices(*sources.verbs_library))
            add_verbs(*devices, sys, hardware);
        else
            hardware.notes.push_back(
                fmt::format("{}: the RDMA devices are those of {}", devices.status().sentence(), sources.sys));
    }
    if (sources.nvml) add_gpus(*sources.nvml, hardware);
    add_gpudirect(sys, proc, hardware);
    const CpuMask allowed = allowed_threads(proc, sources);
    const int threads = hardware.online.count();
    if (const int mine = (allowed & hardware.online).count(); mine > 0 && mine < threads)
        hardware.notes.push_back(
            fmt::format("this process may run on {} of the {} hardware threads: {}", mine, threads, allowed.list()));
    const double quota = cpu_quota(sys, proc).cores;
    if (quota > 0)
        hardware.notes.push_back(
            fmt::format("control groups give this process the time of {:.3g} hardware threads", quota));
    for (const SystemFiles* files : {&sys, &proc})
        for (std::string& sentence : files->notes()) hardware.notes.push_back(std::move(sentence));
    return finish(hardware, allowed);
}

Result<Discovered> discover_xml(const std::string& library, const std::string& xml) {
    return play(hwloc::read_xml(library, xml));
}

Result<Discovered> discover_synthetic(const std::string& library, const std::string& text) {
    return play(hwloc::read_synthetic(library, text));
}

static bool is_of_hwloc(std::string_view xml) { return xml::root_name(xml) == "topology"; }

Result<Discovered> discover_file(const std::string& library, const std::string& xml) {
    if (!is_of_hwloc(xml)) {
        auto read = read_topology(xml);
        if (!read) return read.take_status();
        return Discovered{std::move(read->graph), std::move(read->notes)};
    }
    auto found = discover_xml(library, xml);
    if (!found && found.status().code() != weftInvalidArgument)
        return fail(
            found.status(),
            "only hwloc can read this file of hwloc: {}; on a host with hwloc, `weft topology show --hwloc FILE "
            "--xml OTHER` writes one that needs none",
            found.status().sentence());
    return found;
}

// hwloc reports how PCI links ran at its time, and idle GPUs lower the rate of theirs. So detected values are better.
static void take_detected_links(Graph& file, const Graph& detected) {
    for (const Node& node : detected.nodes()) {
        const int same = node.busid.empty() || file.hosts().size() != 1 ? -1 : file.find(0, node.busid);
        if (same < 0) continue;
        Pci& pci = file.change(same).pci;
        if (!node.pci.link_speed.empty()) pci.link_speed = node.pci.link_speed;
        if (node.pci.link_width != unknown) pci.link_width = node.pci.link_width;
    }
}

// Without such a device libibverbs is not opened, because it would print to standard error. If an option names the
// library, it is opened.
static bool has_rdma(const Options& options) {
    SystemFiles sys("/sys");
    return !options.verbs_library.empty() || !sys.names("class/infiniband").empty() ||
           !sys.names("class/infiniband_verbs").empty();
}

// Adds the user's file to the detected graph. A file that only NCCL's variable names must be of this machine.
static Status take_file(const Options& options, bool is_of_nccl, Discovered& found) {
    constexpr size_t file_bytes_most = size_t(64) << 20;  // of the largest graph that is read
    const char* const variable = options.variable(OptionIndex::topo_file);
    const auto text = read_file(options.topo_file, file_bytes_most);
    if (!text) return fail(text.status(), "{}: {}", variable, text.status().sentence());
    const auto wrong = [&](const std::string& why) {
        return fail(error::topology_file, "{}, {}: {}", variable, options.topo_file, why);
    };
    auto file = discover_file(options.hwloc_library, *text);
    if (!file) return wrong(file.status().sentence());
    if (is_of_hwloc(*text)) take_detected_links(file->graph, found.graph);
    auto both = merge(file->graph, found.graph);
    if (!both) return wrong(both.status().sentence());
    if (is_of_nccl && !both->misfit.empty()) return wrong(both->misfit);
    found.graph = std::move(both->graph);
    for (const std::string& note : file->notes) found.notes.push_back(fmt::format("{}: {}", options.topo_file, note));
    if (!both->foreign.empty()) {
        found.foreign = fmt::format("{}, {}: {}", variable, options.topo_file, both->foreign);
        found.notes.push_back(found.foreign);
    }
    for (const std::string& note : both->notes) found.notes.push_back(fmt::format("{}: {}", options.topo_file, note));
    return ok();
}

Result<Discovered> discover_this_host(const Options& options, const Asked& asked) {
    Sources sources;
    sources.hwloc_library = options.hwloc_library;
    if (asked.verbs && has_rdma(options)) sources.verbs_library = options.verbs_library;
    const Result<const nvml::Nvml*> nvml = asked.nvml ? nvml::Nvml::get() : nullptr;
    if (nvml) sources.nvml = *nvml;
    Discovered found = discover(sources);
    // Without such a GPU, a missing NVML is not reported.
    const auto& nodes = found.graph.nodes();
    const auto is_nvidia = [](const Node& it) { return it.kind == NodeKind::gpu && it.pci.vendor == "0x10de"; };
    if (!nvml && std::any_of(nodes.begin(), nodes.end(), is_nvidia))
        found.notes.push_back(fmt::format("{}: NVLinks are unknown", nvml.status().sentence()));
    if (!options.topo_file.empty()) {
        const bool is_alias = options.origin(OptionIndex::topo_file) == Origin::alias;
        const Status taken = take_file(options, is_alias, found);
        if (!taken && !is_alias) return taken.copy();
        if (!taken) {
            found.left_aside =
                fmt::format("{}: the file is not used, and the machine is as detected", taken.sentence());
            found.notes.push_back(found.left_aside);
        }
    }
    if (!options.topo_dump_file.empty()) {
        const Status written = write_topology_file(found.graph, options.topo_dump_file);
        if (!written && options.origin(OptionIndex::topo_dump_file) != Origin::alias) return written.copy();
        if (!written)
            found.notes.push_back(
                fmt::format("{}: {}", options.variable(OptionIndex::topo_dump_file), written.sentence()));
    }
    return found;
}

Status write_topology_file(const Graph& graph, const std::string& file) {
    return write_file(file, write_topology(graph));  // ranks of one host may write it at the same time
}

}  // namespace weft::internal::topology
