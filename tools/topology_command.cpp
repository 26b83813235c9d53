#include "tools/topology_command.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "topology/discover.hpp"
#include "topology/text.hpp"
#include "topology/topology_xml.hpp"

namespace weft::tools {
namespace {

// A file of the largest graph that is read.
constexpr size_t file_bytes_most = size_t(64) << 20;

struct Request {
    std::string file;
    std::string hwloc_file, synthetic;
    std::string xml;  // empty: none
    bool pxn = false;
};

struct Machine {
    topology::Graph graph;
    std::string source;
    std::vector<std::string> notes;
};

Result<std::string> read(const std::string& file) { return read_file(file, file_bytes_most); }

Result<Machine> played(const std::string& source, Result<topology::Discovered> found) {
    if (!found) {
        const weftResult_t code = found.status().code();
        return fail(code == weftInvalidArgument ? weftInvalidUsage : code, "{}: {}", source, found.status().sentence());
    }
    return Machine{std::move(found->graph), source, std::move(found->notes)};
}

Result<Machine> machine_of(const Request& request) {
    const std::string& library = options().hwloc_library;
    if (!request.synthetic.empty())
        return played("--synthetic", topology::discover_synthetic(library, request.synthetic));
    if (!request.hwloc_file.empty()) {
        auto text = read(request.hwloc_file);
        if (!text) return text.take_status();
        return played(request.hwloc_file, topology::discover_xml(library, *text));
    }
    if (request.file.empty()) {
        auto found = topology::discover_this_host(options());
        if (!found) return found.take_status();
        return Machine{std::move(found->graph), "this machine", std::move(found->notes)};
    }
    auto text = read(request.file);
    if (!text) return text.take_status();
    auto described = topology::read_topology(*text);
    if (!described) return fail(weftInvalidUsage, "{}: {}", request.file, described.status().sentence());
    return Machine{std::move(described->graph), request.file, std::move(described->notes)};
}

Status show(const Request& request) {
    const auto machine = machine_of(request);
    if (!machine) return Status(machine.status().code(), machine.status().sentence());
    fmt::print("{}", topology::write_text(machine->graph, {.pxn = request.pxn}));
    std::fflush(stdout);
    for (const std::string& note : machine->notes) fmt::print(stderr, "{}: {}\n", machine->source, note);
    return request.xml.empty() ? ok() : topology::write_topology_file(machine->graph, request.xml);
}

}  // namespace

void add_topology_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<Request>();
    CLI::App* command = app.add_subcommand("topology", "Shows machines as graphs of devices and links");
    command->require_subcommand(1);
    CLI::App* show_command = command->add_subcommand(
        "show", "Prints devices, links and the paths between them, of this machine or of one that a file describes");
    CLI::Option* file =
        show_command->add_option("file", request->file, "NCCL's topology file; without it, this machine");
    CLI::Option* hwloc_file = show_command->add_option("--hwloc", request->hwloc_file,
                                                       "File of hwloc's, as lstopo writes it: lstopo machine.xml");
    CLI::Option* synthetic = show_command->add_option("--synthetic", request->synthetic,
                                                      "hwloc's description: \"package:2 numa:1 l3:1 core:8 pu:2\"");
    file->excludes(hwloc_file)->excludes(synthetic);
    hwloc_file->excludes(synthetic);
    show_command->add_option("--xml", request->xml, "File to write the graph to, in the same form");
    show_command->add_flag("--pxn", request->pxn, "Paths to NICs also through another GPU");
    show_command->callback([request, &exit_status] {
        const Status status = show(*request);
        if (!status) fmt::print(stderr, "weft topology: {}\n", status.sentence());
        exit_status = status ? 0 : status.code() == weftInvalidArgument ? 2 : 1;
    });
}

}  // namespace weft::tools
