#include "tools/rdma_report.hpp"

#include <string>
#include <vector>

#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/drivers/verbs/report.hpp"
#include "topology/gpu_nics.hpp"
#include "topology/search/nics.hpp"

namespace weft::internal::tools {

namespace {

using Json = nlohmann::ordered_json;

struct Seats {
    std::vector<std::string> names;
    std::vector<topology::RankNodes> nodes;
};

// A rank on each GPU. Without GPUs a rank on the cores that this process may use.
Seats seats_on(const topology::Graph& graph) {
    Seats seats;
    for (const int gpu : graph.of_kind(topology::NodeKind::gpu)) {
        seats.names.push_back(graph.name(gpu));
        seats.nodes.push_back({gpu});
    }
    if (!seats.names.empty()) return seats;
    topology::RankNodes cpus;
    for (const int cpu : graph.of_kind(topology::NodeKind::cpu))
        if (graph.node(cpu).cpu.allowed != "0") cpus.push_back(cpu);
    seats.names.emplace_back("a rank here");
    seats.nodes.push_back(std::move(cpus));
    return seats;
}

// How messages in the memory of a GPU reach its port; empty: unknown.
std::string way_of_memory(const topology::Graph& graph, const verbs::IbReport& report,
                          const topology::NicChoice& choice) {
    const topology::PathClass path_class = choice.path_class();
    if (path_class != topology::PathClass::none && path_class > topology::farthest(report.gdr_level))
        return fmt::format("{} is farther than {} allows: GPU memory is staged in host memory", name_of(path_class),
                           options().variable(OptionIndex::gdr_level));
    const verbs::IbPort& port = report.ports[size_t(choice.ports[0])];
    for (const int node : graph.of_kind(topology::NodeKind::port)) {
        const topology::Port& known = graph.node(node).port;
        if (known.name != port.device || (known.number != port.number && known.number != topology::unknown)) continue;
        if (known.gdr == 0)
            return "GPU memory is staged in host memory: the port takes no dma-buf, or the driver exports none, and "
                   "nvidia-peermem is not loaded";
        if (known.gdr == 1) return "GPU memory is sent and received directly";
    }
    return {};
}

Json choices_of(const topology::Graph& graph, const verbs::IbReport& report) {
    std::vector<topology::NicPort> ports;
    const bool ethernet = verbs::preferred_link_layer(report.ports) == verbs::link_ethernet;
    for (const verbs::IbPort& port : report.ports)
        ports.push_back({.device = port.device,
                         .number = port.number,
                         .usable = port.usable() && (port.link_layer == verbs::link_ethernet) == ethernet});
    const Seats seats = seats_on(graph);
    const std::vector<topology::NicChoice> choices = topology::choose_nics(graph, ports, seats.nodes);
    Json rows = Json::array();
    for (size_t i = 0; i < choices.size(); ++i) {
        const topology::NicChoice& choice = choices[i];
        if (choice.ports.empty()) continue;
        const bool gpu = graph.node(seats.nodes[i].empty() ? 0 : seats.nodes[i][0]).kind == topology::NodeKind::gpu;
        const std::string memory = gpu ? way_of_memory(graph, report, choice) : "";
        rows.push_back({{"for", seats.names[i]},
                        {"port", report.ports[size_t(choice.ports[0])].name()},
                        {"why", reason_of(choice)},
                        {"memory", memory}});
    }
    return rows;
}

}  // namespace

Json describe_rdma(const topology::Graph* graph, EnvironmentCheck& check) {
    const verbs::IbReport report = verbs::describe_ib(options());
    if (!report.status.ok()) check.errors.push_back(report.status.sentence());
    Json ports = Json::array();
    for (const verbs::IbPort& port : report.ports)
        ports.push_back({{"name", port.name()},
                         {"summary", port.summary()},
                         {"mbps", port.mbps},
                         {"why_not", port.why_not},
                         {"notes", port.notes}});
    return {{"why_not", report.why_not},
            {"ports", std::move(ports)},
            {"choices", graph && report.why_not.empty() ? choices_of(*graph, report) : Json::array()},
            {"notes", report.notes}};
}

void print_rdma(const Json& rdma) {
    const auto text = [](const Json& value) { return value.get<std::string>(); };
    print_output("\nRDMA\n");
    if (rdma["why_not"] != "") print_output("  {:<12}  {}\n", "not used", text(rdma["why_not"]));
    for (const Json& port : rdma["ports"]) {
        const std::string summary = text(port["summary"]), why_not = text(port["why_not"]);
        print_output("  {:<12}  {}{}{}\n", text(port["name"]), summary, summary.empty() || why_not.empty() ? "" : "; ",
                     why_not.empty() ? "" : "not used: " + why_not);
        for (const Json& note : port["notes"]) print_output("{:16}{}\n", "", text(note));
    }
    for (const Json& row : rdma["choices"]) {
        print_output("  {:<12}  {}, {}\n", text(row["for"]), text(row["port"]), text(row["why"]));
        if (row["memory"] != "") print_output("{:16}{}\n", "", text(row["memory"]));
    }
    for (const Json& note : rdma["notes"]) print_output("{:16}{}\n", "", text(note));
}

}  // namespace weft::internal::tools
