#include "tools/topology_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "tools/pictures/channels.hpp"
#include "tools/pictures/machine.hpp"
#include "topology/detect/discover.hpp"
#include "topology/files/text.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/search/channel_check.hpp"
#include "topology/search/search.hpp"
#include "topology/search/search_text.hpp"

namespace weft::internal::tools {
namespace {

struct Request {
    std::string file;
    std::string hwloc_file, synthetic;
    std::string xml, svg;  // empty: none
    bool pxn = false;
    int hosts = 1;
    std::string gpus;  // dev,dev,..; empty: all
    std::string rails = "best";
    bool all_links = false;
    std::string graph;  // empty: none
};

struct Machine {
    topology::Graph graph;
    std::string source;
    std::vector<std::string> notes;
};

Result<std::string> topology_text(const std::string& file) {
    return read_file(file, topology::topology_file_bytes_most, Pipes::read);
}

Result<Machine> played(const std::string& source, Result<topology::Discovered> found) {
    if (!found) {
        const Status& why = found.status();
        if (why.code() == weftInvalidArgument) return fail(error::command_input, "{}: {}", source, why.sentence());
        return fail(why, "{}: {}", source, why.sentence());
    }
    return Machine{std::move(found->graph), source, std::move(found->notes)};
}

Result<Machine> machine_of(const Request& request) {
    const std::string& library = options().hwloc_library;
    if (!request.synthetic.empty())
        return played("--synthetic", topology::discover_synthetic(library, request.synthetic));
    if (!request.hwloc_file.empty()) {
        auto text = topology_text(request.hwloc_file);
        if (!text) return text.take_status();
        return played(request.hwloc_file, topology::discover_xml(library, *text));
    }
    if (request.file.empty()) {
        auto found = topology::discover_this_host(options());
        if (!found) return found.take_status();
        return Machine{std::move(found->graph), "this machine", std::move(found->notes)};
    }
    auto text = topology_text(request.file);
    if (!text) return text.take_status();
    return played(request.file, topology::discover_file(library, *text));
}

void print_notes(const Machine& machine) {
    flush_output();
    for (const std::string& note : machine.notes) print_error("{}: {}\n", machine.source, note);
}

// Draws the machine and, below it, the channels that were found.
Status draw_topology(const Request& request, const Machine& machine, const topology::Channels* channels) {
    constexpr double left = 16, top = 16, width_least = 900;
    Svg svg;
    const Status drawn = draw_machine(svg, machine.graph, request.hosts, {left, top});
    if (!drawn) return fail(drawn, "{}: {}", machine.source, drawn.sentence());
    if (channels) draw_channels(svg, *channels, {left, svg.bottom() + 20}, std::max(width_least, svg.right()) - left);
    return write_file(request.svg, svg.finish("The machine's devices, links and channels"));
}

Status show_topology(const Request& request) {
    const auto machine = machine_of(request);
    if (!machine) return machine.status().copy();
    print_output("{}", topology::write_text(machine->graph, {.pxn = request.pxn}));
    print_notes(*machine);
    // The error of a search without nodes.
    if (machine->graph.nodes().empty())
        return fail(error::topology_invalid, "{}: the machine has no cpu, so there is nothing to show",
                    machine->source);
    if (!request.xml.empty()) WEFT_TRY(topology::write_topology_file(machine->graph, request.xml));
    return request.svg.empty() ? ok() : draw_topology(request, *machine, nullptr);
}

// Checks whether the channels of a graph file fit the machines: a message for each that does not.
Status check(const Request& request, const Machine& machine, const topology::Job& job) {
    const auto text = topology_text(request.graph);
    if (!text) return text.status().copy();
    const auto described = topology::read_graphs(*text);
    if (!described) return fail(error::command_input, "{}: {}", request.graph, described.status().sentence());
    for (const std::string& note : described->notes) print_error("{}: {}\n", request.graph, note);
    size_t objections = 0;
    for (const topology::ChannelGraph& graph : described->graphs) {
        const auto found = topology::check_channels(graph, job);
        if (!found) return found.status().copy();
        for (const std::string& objection : *found) print_output("{}\n", objection);
        objections += found->size();
    }
    if (objections > 0) return fail(error::command_input, "{} does not fit {}", request.graph, machine.source);
    print_output("{} fits {}\n", request.graph, machine.source);
    return ok();
}

// Empty: all GPUs.
Result<std::vector<int>> gpus_of(const Request& request) {
    std::vector<int> gpus;
    if (request.gpus.empty()) return gpus;
    for (size_t begin = 0; begin <= request.gpus.size();) {
        const size_t end = std::min(request.gpus.find(',', begin), request.gpus.size());
        const std::string word = request.gpus.substr(begin, end - begin);
        begin = end + 1;
        const auto dev = parse_integer(word, false);
        if (!dev || *dev < 0 || *dev > INT_MAX)
            return fail(error::command_option,
                        "--gpus {}: `{}` is not the dev of a GPU; give numbers with commas: 0,1,2,3", request.gpus,
                        word);
        if (std::count(gpus.begin(), gpus.end(), int(*dev)) > 0)
            return fail(error::command_option, "--gpus {} names {} twice", request.gpus, *dev);
        gpus.push_back(int(*dev));
    }
    return gpus;
}

Status search(const Request& request) {
    const auto machine = machine_of(request);
    if (!machine) return machine.status().copy();
    print_notes(*machine);
    const auto gpus = gpus_of(request);
    if (!gpus) return gpus.status().copy();
    const auto job = topology::job_of_all(machine->graph, request.hosts, *gpus);
    if (!job) return fail(job.status(), "{}: {}", machine->source, job.status().sentence());
    if (!request.graph.empty()) return check(request, *machine, *job);
    topology::SearchOptions options;
    if (request.all_links) options.gain_least = 0;
    if (request.rails != "best")
        options.rails = request.rails == "only" ? topology::RailUse::only : topology::RailUse::any;
    const auto found = topology::search(*job, options);
    if (!found) return fail(found.status(), "{}: {}", machine->source, found.status().sentence());
    print_output("{}", topology::write_text(*found));
    if (!request.svg.empty()) WEFT_TRY(draw_topology(request, *machine, &*found));
    if (request.xml.empty()) return ok();
    if (found->kinds.size() > 1)
        return fail(error::command_input,
                    "{}: there are machines of {} kinds; a graph file describes machines of one kind", machine->source,
                    found->kinds.size());
    return write_file(request.xml, topology::write_graphs(found->kinds[0].graphs));
}

int exit_status_of(const Status& status) {
    if (!status) print_error("weft topology: {}\n", status.text());
    return status ? 0 : status.code() == weftInvalidArgument ? 2 : 1;
}

// An empty argument, as from `--hwloc "$unset"`, would look like a missing option.
std::string not_empty(const std::string& text) { return text.empty() ? "it is given, but empty" : ""; }

// The options for the source of the machine.
void add_sources(CLI::App& command, Request& request) {
    CLI::Option* file =
        command.add_option("file", request.file, "NCCL's topology file, or hwloc's; without it, this machine");
    CLI::Option* hwloc_file =
        command.add_option("--hwloc", request.hwloc_file, "File of hwloc's, as lstopo writes it: lstopo machine.xml");
    CLI::Option* synthetic = command.add_option("--synthetic", request.synthetic,
                                                "hwloc's description: \"package:2 numa:1 l3:1 core:8 pu:2\"");
    hwloc_file->check(not_empty);
    synthetic->check(not_empty);
    file->check(not_empty);
    file->excludes(hwloc_file)->excludes(synthetic);
    hwloc_file->excludes(synthetic);
}

}  // namespace

void make_topology_show(CLI::App& command, int& exit_status) {
    auto request = std::make_shared<Request>();
    add_sources(command, *request);
    command.add_option("--xml", request->xml, "File to write the graph to, in NCCL's form");
    command.add_option("--svg", request->svg, "File to draw the machine to");
    command.add_flag("--pxn", request->pxn, "Paths to NICs also through another GPU");
    command.callback([request, &exit_status] { exit_status = exit_status_of(show_topology(*request)); });
}

void add_topology_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<Request>();
    CLI::App* command =
        app.add_subcommand("topology", "Shows machines as graphs of devices and links; without a subcommand, this one");
    command->require_subcommand(0, 1);
    command->callback([command, &exit_status] {
        if (command->get_subcommands().empty()) exit_status = exit_status_of(show_topology(Request()));
    });
    make_topology_show(
        *command->add_subcommand(
            "show",
            "Prints devices, links and the paths between them, of this machine or of one that a file describes"),
        exit_status);

    CLI::App* search_command = command->add_subcommand(
        "search", "Prints the channels of a job and how good they are: weft topology search machine.xml --hosts 4");
    add_sources(*search_command, *request);
    search_command->add_option("--hosts", request->hosts, "How many machines like it, each with all its GPUs");
    search_command->add_option("--gpus", request->gpus, "Only these of each machine, by dev: 0,1,2,3")
        ->check(not_empty);
    search_command
        ->add_option("--rails", request->rails, "Whether channels keep to NICs of the same index: only, any, best")
        ->check(CLI::IsMember({"only", "any", "best"}));
    search_command->add_flag("--all-links", request->all_links, "Far links beside near ones, whatever they gain");
    search_command->add_option("--xml", request->xml, "File to write the channels to, as NCCL's graph file");
    CLI::Option* svg =
        search_command->add_option("--svg", request->svg, "File to draw the machine and its channels to");
    search_command
        ->add_option("--graph", request->graph,
                     "Nothing is searched: NCCL's graph file whose channels are held against the machine")
        ->excludes(svg);
    search_command->callback([request, &exit_status] { exit_status = exit_status_of(search(*request)); });
}

}  // namespace weft::internal::tools
