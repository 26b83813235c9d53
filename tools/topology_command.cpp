#include "tools/topology_command.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "src/base/file.hpp"
#include "topology/text.hpp"
#include "topology/topology_xml.hpp"

namespace weft::tools {
namespace {

// A file of the largest graph that is read.
constexpr size_t file_bytes_most = size_t(64) << 20;

struct Request {
    std::string file;
    std::string xml;  // empty: none
    bool pxn = false;
};

Status show(const Request& request) {
    const auto text = read_file(request.file, file_bytes_most);
    if (!text) return Status(text.status().code(), text.status().sentence());
    const auto read = topology::read_topology(*text);
    if (!read) return fail(weftInvalidUsage, "{}: {}", request.file, read.status().sentence());
    fmt::print("{}", topology::write_text(read->graph, {.pxn = request.pxn}));
    for (const std::string& note : read->notes) fmt::print(stderr, "{}: {}\n", request.file, note);
    if (request.xml.empty()) return ok();
    std::ofstream file(request.xml, std::ios::binary);
    file << topology::write_topology(read->graph);
    file.close();
    if (!file) return fail(weftSystemError, "{} could not be written: {}", request.xml, errno_text(errno));
    return ok();
}

}  // namespace

void add_topology_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<Request>();
    CLI::App* command = app.add_subcommand("topology", "Shows machines as graphs of devices and links");
    command->require_subcommand(1);
    CLI::App* show_command = command->add_subcommand(
        "show", "Prints devices, links and the paths between them: weft topology show machine.xml");
    show_command->add_option("file", request->file, "NCCL's topology file")->required();
    show_command->add_option("--xml", request->xml, "File to write the graph to, in the same form");
    show_command->add_flag("--pxn", request->pxn, "Paths to NICs also through another GPU");
    show_command->callback([request, &exit_status] {
        const Status status = show(*request);
        if (!status) fmt::print(stderr, "weft topology: {}\n", status.sentence());
        exit_status = status ? 0 : status.code() == weftInvalidArgument ? 2 : 1;
    });
}

}  // namespace weft::tools
