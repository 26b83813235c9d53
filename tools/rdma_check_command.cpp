#include "tools/rdma_check_command.hpp"

#include <memory>
#include <string>
#include <vector>

#include "src/base/printing.hpp"
#include "tools/rdma_check.hpp"
#include "tools/rdma_check_parts.hpp"

namespace weft::internal::tools {

namespace {

struct RdmaCheckRequest {
    RdmaPeers peers;
    RdmaCheckPlan plan;
    RdmaPart part;
    bool quick = false, no_failures = false;
};

int check_or_play(RdmaCheckRequest& request) {
    if (!request.part.name.empty()) return run_rdma_part(request.part);
    request.plan.measures = !request.quick;
    request.plan.failures = !request.no_failures;
    const auto tell = [](const Status& status) {
        print_error("weft rdma-check: {}\n", status.sentence());
        return status.code() == weftInvalidArgument ? 2 : 1;
    };
    std::vector<std::string> words{"weft",
                                   "rdma-check",
                                   "--runs",
                                   std::to_string(request.plan.runs),
                                   "--perftest-port",
                                   std::to_string(request.plan.socket_port)};
    if (request.quick) words.emplace_back("--quick");
    if (request.no_failures) words.emplace_back("--no-failures");
    if (Status launched = launch_rdma_check(request.peers, std::move(words)); !launched) return tell(launched);
    auto meeting = RdmaMeeting::begin();
    if (!meeting) return tell(meeting.status());
    const auto good = check_rdma_between(*meeting, request.plan);
    if (!good) return tell(good.status());
    return *good ? 0 : 1;
}

}  // namespace

void add_rdma_check_command(CLI::App& app, int& exit_status) {
    auto request = std::make_shared<RdmaCheckRequest>();
    CLI::App* command = app.add_subcommand("rdma-check",
                                           "Tests and measures RDMA between two hosts, beside perftest. Start it on "
                                           "one host, which prints the command for "
                                           "the other, or once on each of two hosts by a launcher");
    command->add_option("--join", request->peers.host, "The host where it was started first");
    command->add_option("--port", request->peers.port, "A free TCP port of that host")
        ->capture_default_str()
        ->check(CLI::Range(1, 65535));
    command->add_option("--secret", request->peers.secret, "Equal on both hosts; the first process prints a new one");
    command->add_option("--wait", request->peers.timeout_s, "Seconds for the other process to come")
        ->capture_default_str()
        ->check(CLI::Range(1, 86'400));
    command->add_option("--runs", request->plan.runs, "Runs of each measurement, Weft and perftest in turn")
        ->capture_default_str()
        ->check(CLI::Range(1, 99));
    command->add_option("--perftest-port", request->plan.socket_port, "TCP port of perftest on the first host")
        ->capture_default_str()
        ->check(CLI::Range(1, 65535));
    command->add_flag("--quick", request->quick, "Measures nothing");
    command->add_flag("--no-failures", request->no_failures, "Provokes no failures");
    // For its own processes.
    command->add_option("--part", request->part.name)->group("")->check(CLI::IsMember({"transfers", "times", "alive"}));
    command->add_option("--id", request->part.id)->group("");
    command->add_option("--rank", request->part.rank)->group("")->check(CLI::Range(0, 1));
    command->add_flag("--little-memory", request->part.little_memory)->group("");
    command->callback([=, &exit_status] { exit_status = check_or_play(*request); });
}

}  // namespace weft::internal::tools
