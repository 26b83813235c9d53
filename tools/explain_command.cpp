#include "tools/explain_command.hpp"

#include <fmt/core.h>

#include <climits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/comm/joining.hpp"
#include "src/peer_access/limits.hpp"
#include "src/registry.hpp"
#include "src/selector/built_in_costs.hpp"
#include "src/selector/catalog.hpp"
#include "src/selector/network_kinds.hpp"
#include "src/selector/selector.hpp"
#include "src/selector/tuning_file.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/environment_check.hpp"
#include "topology/detect/container.hpp"
#include "topology/detect/discover.hpp"
#include "topology/fabric/simulated_hosts.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/search/arrangement.hpp"

namespace weft::internal::tools {
namespace {

// The call to explain, on ranks that need not exist.
struct Question {
    std::vector<std::string> call;  // [collective,] size
    std::string collective;
    std::optional<int> ranks;
    int hosts = 1, cores = 0;  // 0: not given
    bool one_machine = false;
    int64_t link_mbps = 0;
    std::string network;   // kind of RDMA devices; empty: TCP
    int rails = 1;         // of them, at once
    std::string topology;  // file; empty: not given
};

// The layout of ranks on machines as in `question`.
struct ExplainedLayout {
    Layout layout;
    int machines = 1, cores = 1;
    int64_t link_mbps = 0;
};

Result<ExplainedLayout> layout_on_equal_hosts(const Question& question) {
    const int ranks = question.ranks.value_or(2);
    if (ranks < 1 || question.hosts < 1 || question.hosts > ranks)
        return fail(error::command_option, "{} ranks do not fit on {} hosts", ranks, question.hosts);
    const int machines = question.one_machine ? 1 : question.hosts;
    if (machines == 1 && question.link_mbps > 0)
        return fail(
            error::command_option,
            "--link-mbps is the speed between machines, but there is one machine; add --hosts, or leave it out");
    // The layout of programs that are started in this environment.
    const int hosts = ranks_share_memory() ? question.hosts : ranks;
    const int cores = question.cores > 0 ? question.cores : topology::usable_cores();
    return ExplainedLayout{layout_in_blocks(ranks, hosts), machines, cores, question.link_mbps};
}

// Prints all rings and the messages that communicators would log at their creation.
Result<ExplainedLayout> layout_on_topology(const Question& question) {
    if (question.one_machine)
        return fail(error::command_option, "--one-machine means this machine, --topology other ones; give one of them");
    if (!ranks_share_memory())
        return fail(error::command_option,
                    "--topology needs ranks that share the memory of their host, but WEFT_TRANSPORTS excludes it");
    const auto text = read_file(question.topology, topology::topology_file_bytes_most);
    if (!text) return text.status().copy();
    const auto read = topology::discover_file(options().hwloc_library, *text);
    if (!read) return fail(read.status(), "{}: {}", question.topology, read.status().sentence());
    if (question.ranks && *question.ranks < 1)
        return fail(error::command_option, "--ranks is {}; it must be at least 1", *question.ranks);
    auto simulated = topology::simulate_hosts(read->graph, question.hosts, question.ranks.value_or(0));
    if (!simulated) return fail(simulated.status(), "{}: {}", question.topology, simulated.status().sentence());
    for (const std::string& note : read->notes) print_error("{}: {}\n", question.topology, note);
    Layout& layout = simulated->layout;
    for (const std::string& note :
         topology::arrange(simulated->job, simulated->gpus ? "GPUs" : "processors", simulated->domains, layout).notes)
        print_output("{}\n", note);
    constexpr size_t shown_most = 128;
    for (size_t ring = 0; ring < layout.ring_orders.size(); ++ring)
        print_output("ring {}: {}\n", ring, topology::shortened(layout.ring_orders[ring], shown_most));
    const int hosts = layout.host_count();
    return ExplainedLayout{layout, hosts, question.cores > 0 ? question.cores : simulated->cores,
                           question.link_mbps > 0 ? question.link_mbps : simulated->link_mbps};
}

int answer(const Question& question) {
    const auto refuse = [](const std::string& sentence) {
        print_error("weft info explain: {}\n", sentence);
        return 2;
    };
    std::string name = question.collective, size = question.call.empty() ? "" : question.call.back();
    // A single word is a size, unless it is a collective's name.
    const bool word_is_name = question.call.size() == 1 && !parse_integer(size, true) && collective_meant(size);
    if (question.call.size() == 2 || word_is_name) {
        if (!name.empty()) return refuse("the collective is named twice: leave --collective out");
        name = question.call.front();
        if (word_is_name) size.clear();
    }
    const auto bytes = parse_integer(size.empty() ? "0" : size, true);
    if (!bytes || *bytes < 0) return refuse(fmt::format("{} is not a size; a size is bytes, with K, M or G", size));
    const auto collective = collective_meant(name.empty() ? name_of(Collective::all_reduce) : name);
    if (!collective) return refuse(collective.status().sentence());
    if (size.empty() && *collective != Collective::barrier)
        return refuse(
            fmt::format("say a size, in bytes, with K, M or G: weft info explain {} 1M", name_of(*collective)));
    const EnvironmentCheck check = check_environment(Catalog::load(options().algo_files, 0, registry::algorithms()));
    for (const std::string& sentence : check.warnings) print_error("weft info explain: warning: {}\n", sentence);
    for (const std::string& sentence : check.errors) print_error("weft info explain: {}\n", sentence);
    if (!check.errors.empty()) return 1;
    const auto place = question.topology.empty() ? layout_on_equal_hosts(question) : layout_on_topology(question);
    if (!place) return refuse(place.status().sentence());
    const Layout& layout = place->layout;
    Operation operation;
    operation.collective = *collective;
    operation.type = weftFloat32;
    operation.op = weftSum;
    operation.count = uint64_t(*bytes) / size_of(weftFloat32) / uint64_t(parts_of(*collective, layout.ranks));
    const bool uses_cma = cma_messages_wanted(options().cross_memory);
    auto tuning = tuning_of_file(options().tune_file);
    if (!tuning) return print_error("weft info explain: {}\n", tuning.status().sentence()), 1;
    LinkCosts links = link_costs_in_blocks(layout.ranks, layout.host_count(), place->machines, place->cores,
                                           place->link_mbps, uses_cma);
    if (!question.network.empty()) {
        const NetworkKind* kind = find_network_kind(question.network);
        if (!kind)
            return refuse(
                fmt::format("network `{}` does not exist; there are {}", question.network, network_kind_names()));
        if (place->machines == 1) return refuse("--network is between machines, but there is one: add --hosts");
        const int64_t port_mbps = place->link_mbps > 0 ? place->link_mbps : kind->mbps;
        links = over_network(std::move(links), *kind, port_mbps * question.rails);
        links.net_links = network_links(layout, speed_of(*kind, question.rails)).links;
    } else if (question.rails > 1) {
        return refuse("--rails counts ports of RDMA devices: name their --network");
    }
    Costs costs(links, std::move(*tuning));
    if (!question.network.empty()) costs.network = "verbs";
    const Preferences preferences{options().algo, options().channels, options().deterministic != 0};
    const Catalog catalog =
        Catalog::load(options().algo_files, layout.ranks, registry::algorithms(), !options().algo_files_order.empty());
    // WEFT_ALGO is checked as in a communicator of this many ranks.
    if (const Status named = catalog.check("WEFT_ALGO", options().algo); !named)
        return print_error("weft info explain: {}\n", named.sentence()), 1;
    print_output("{}\n", explain(operation, layout, costs, preferences, catalog.rows()));
    for (const Catalog::LeftOut& one : catalog.left_out()) print_output("WEFT_ALGO_FILES: {}\n", one.message);
    return select(operation, layout, costs, preferences, catalog.rows()) ? 0 : 1;
}

}  // namespace

CLI::App* add_explain_command(CLI::App& info, int& exit_status) {
    auto question = std::make_shared<Question>();
    CLI::App* explaining = info.add_subcommand(
        "explain", "Prints the algorithm that a collective would use, and the predicted cost of each");
    explaining
        ->add_option("call", question->call,
                     "A collective, all_reduce if it is left out, and the size of the larger buffer: bytes, with K, M "
                     "or G; a barrier has none")
        ->option_text("[COLLECTIVE] SIZE")
        ->expected(0, 2);
    explaining->add_option("--collective", question->collective, "The collective, if SIZE has no collective");
    explaining
        ->add_option("-n,--ranks", question->ranks, "Ranks of the communicator (2; with --topology as many as fit)")
        ->check(CLI::Range(1, max_ranks));
    explaining
        ->add_option("--hosts", question->hosts,
                     "Hosts that they are on, in blocks (1; a host for each rank where WEFT_TRANSPORTS has no shm); so "
                     "many of --topology's machines")
        ->check(CLI::Range(1, max_ranks));
    explaining->add_flag("--one-machine", question->one_machine,
                         "The hosts are containers of this machine, or named by WEFT_HOSTID: they share its cores, and "
                         "its memory is their network");
    explaining->add_option("--cores", question->cores, "Cores of a machine (this one's, or as --topology has it)")
        ->check(CLI::Range(1, 1 << 20));
    explaining
        ->add_option("--link-mbps", question->link_mbps,
                     "Megabits a second of a host's network (unknown, or as --topology has it)")
        ->check(CLI::Range(1, INT_MAX));
    explaining->add_option(
        "--network", question->network,
        "RDMA devices between the machines in place of TCP, one for a host unless --topology says more: " +
            network_kind_names());
    explaining
        ->add_option("--rails", question->rails,
                     "Ports of --network that carry the messages of two ranks at once (1), as WEFT_IB_RAILS has it")
        ->check(CLI::Range(1, 8));
    explaining->add_option(
        "--topology", question->topology,
        "NCCL's topology file of the machines: ranks sit on their GPUs, or on cores, and rings, rails "
        "and the NVLink domains are those that communicators there would find");
    explaining->callback([=, &exit_status] { exit_status = answer(*question); });
    return explaining;
}

}  // namespace weft::internal::tools
