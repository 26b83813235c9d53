#include "tools/simulate_command.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "src/base/printing.hpp"
#include "tools/simulate_choice.hpp"
#include "tools/simulate_faults.hpp"
#include "tools/simulate_report.hpp"
#include "tools/simulate_scene.hpp"
#include "tools/simulate_trace.hpp"
#include "tools/simulate_tune.hpp"

namespace weft::internal::tools {
namespace {

// A row of the scene on its current machines. `before`: the scene without faults; `after`: the scene with them, if they
// differ.
struct Shown {
    SimulatedRow row;
    std::unique_ptr<Fabric> whole, damaged;
    SimulatedCall call;
    const Fabric& fabric() const { return damaged ? *damaged : *whole; }
};

Result<double> us_of(const Fabric& fabric, const SimulatedCall& call) {
    auto found = simulate(fabric, call);
    if (!found) return found.take_status();
    return found->us;
}

Result<Shown> shown(const SimulateRequest& request, const Scene& before, const Scene* after, const Algorithm& row) {
    const Scene& now = after ? *after : before;
    auto whole = fabric_of(before, row);
    if (!whole) return whole.take_status();
    auto damage = damage_of(request, before, **whole);
    if (!damage) return damage.take_status();
    Shown shown{{&row, {}, {}, {}, {}}, std::move(*whole), nullptr, call_of(request, now, row)};
    if (!request.failed_hosts.empty()) {
        auto left = fabric_of(now, row);
        if (!left) return left.take_status();
        shown.damaged = std::move(*left);
    } else if (!damage->none()) {
        shown.damaged = std::make_unique<DegradedFabric>(*shown.whole, std::move(*damage));
    }
    if (shown.damaged && !row.refusal(before.layout))
        if (const auto healthy_us = us_of(*shown.whole, call_of(request, before, row)))
            shown.row.healthy_us = *healthy_us;
    if (after && request.failed_hosts.empty() && after->layout.ring_orders != before.layout.ring_orders)
        if (const auto kept_us = us_of(*shown.damaged, call_of(request, before, row)))
            shown.row.old_rings_us = *kept_us;
    auto found = simulate(shown.fabric(), shown.call);
    if (found) {
        shown.row.found = std::move(*found);
    } else {
        shown.row.objection = found.status().sentence();
        shown.row.objection_id = found.status().id();
    }
    return shown;
}

Status trace(const SimulateRequest& request, const Fabric& fabric, const SimulatedCall& call, const Simulation& found) {
    auto traced = write_trace(fabric, call, found, {.ranks = request.trace_ranks}, request.trace);
    if (!traced) return traced.take_status();
    std::string left_out;
    if (traced->ranks_left_out > 0)
        left_out += fmt::format("; {} further ranks are left out, see --trace-ranks", traced->ranks_left_out);
    if (traced->steps_left_out + traced->loads_left_out > 0)
        left_out += fmt::format("; the last {} steps and {} changes of links are left out", traced->steps_left_out,
                                traced->loads_left_out);
    if (!request.as_json)
        print_output("\n{}: {} steps of {} ranks{}\n", request.trace, traced->steps, traced->ranks, left_out);
    return ok();
}

// The rows of a request for all algorithms.
Result<SimulatedRows> simulated_rows(const SimulateRequest& request) {
    auto before = scene_of(request);
    if (!before) return before.take_status();
    auto after = scene_after(request, *before);
    if (!after) return after.take_status();
    SimulatedRows all{*after ? **after : *before, {}};
    for (const Algorithm* row : all.scene.rows) {
        auto each = shown(request, *before, *after ? &all.scene : nullptr, *row);
        if (!each) return each.take_status();
        all.rows.push_back(std::move(each->row));
    }
    return all;
}

Status tune(SimulateRequest request, bool all_collectives) {
    if (request.algorithm != "all" || !request.trace.empty() || request.as_json)
        return fail(error::command_option, "--tune needs `all` algorithms, and excludes --trace and --json");
    // The file names neither, so programs would scale its times by the built-in costs of TCP.
    if (!request.network.empty() || !request.constants.empty())
        return fail(error::command_option,
                    "--tune excludes --network and --set: a tuning file holds times of the built-in costs of TCP; "
                    "leave {} out, and choose on such hosts by WEFT_ALGO",
                    request.network.empty() ? "--set" : "--network");
    if (all_collectives) request.collective.clear();
    request.anyway = true;  // a curve without its largest sizes would mislead in this case too
    return write_simulated_tuning(std::move(request), simulated_rows);
}

Status simulate_request(SimulateRequest request) {
    WEFT_TRY(read_algorithm_file(request));
    if (!request.trace.empty() && request.algorithm == "all")
        return fail(error::command_option, "--trace needs one algorithm in place of `all`");
    auto before = scene_of(request);
    if (!before) return before.take_status();
    auto after = scene_after(request, *before);
    if (!after) return after.take_status();
    const Scene& now = *after ? **after : *before;
    for (const std::string& note : before->notes) print_error("{}\n", note);
    if (*after)
        for (const std::string& note : (*after)->notes) print_error("{}\n", note);
    std::vector<SimulatedRow> rows;
    for (const Algorithm* row : now.rows) {
        auto each = shown(request, *before, *after ? &now : nullptr, *row);
        if (!each) return each.take_status();
        if (request.algorithm == "all") {
            rows.push_back(std::move(each->row));
            continue;
        }
        if (!each->row.found) return fail(each->row.objection_id, "{}", each->row.objection);
        print_simulation(request, now, each->fabric(), each->row);
        return request.trace.empty() ? ok() : trace(request, each->fabric(), each->call, *each->row.found);
    }
    print_comparison(request, now, std::move(rows), weft_choice(request, now));
    return ok();
}

void add_machines(CLI::App& command, SimulateRequest& request) {
    command.add_option("-n,--ranks", request.ranks, "Ranks of the communicator")
        ->check(CLI::Range(1, simulated_ranks_most));
    command
        .add_option("--hosts", request.hosts, "Hosts that the ranks are on, as many on each; with --topology, copies")
        ->check(CLI::Range(1, simulated_ranks_most));
    command.add_option(
        "--host", request.host,
        "Their kind, dgx-h100 by default; with --topology, the model for the devices themselves: " + host_kind_names());
    command.add_option(
        "--network", request.network,
        "RDMA devices between the hosts, with Weft's costs in place of the kind's: " + network_kind_names());
    command
        .add_option("--rails", request.rails,
                    "Ports of --network that carry the messages of two ranks at once (1), as WEFT_IB_RAILS has it; "
                    "--set net_bytes_per_us is the limit of a bus")
        ->check(CLI::Range(1, 8));
    command.add_option("--topology", request.topology,
                       "File of NCCL's, or hwloc's, whose GPUs, or cores where it has none, the ranks sit on");
    command
        .add_option("--set", request.constants,
                    "NAME=VALUE: a constant of the kind as measured, as in step_us=0.3 or memory_bytes_per_us=9000")
        ->allow_extra_args(false);
    command.add_option(
        "--protocol", request.protocol,
        "How devices move bytes over connections, with NCCL's constants: simple (if not said), ll128, ll");
}

void add_damage(CLI::App& command, SimulateRequest& request) {
    const auto add = [&](const char* name, std::vector<std::string>& into, const char* help) {
        command.add_option(name, into, help)->allow_extra_args(false);
    };
    add("--slow-link", request.slow_links,
        "NAME=FACTOR, as in \"network out of rank 3=2\": half the bandwidth; names as in the table of busiest links");
    add("--slow-host", request.slow_hosts, "HOST=FACTOR: the steps of its ranks take FACTOR times as long");
    add("--slow-rank", request.slow_ranks, "RANK=FACTOR: the same for one rank");
    add("--fail-link", request.failed_links,
        "NAME of a failed link: its messages take another route if there is one, and rings are searched again");
    add("--fail-host", request.failed_hosts,
        "HOST that is gone with its ranks: the others are a communicator of their own");
}

}  // namespace

void add_simulate_command(CLI::App& schedule_command, std::function<void(const Status&)> report) {
    auto request = std::make_shared<SimulateRequest>();
    CLI::App* command = schedule_command.add_subcommand(
        "simulate",
        "Predicts a collective on hosts that are not there: weft schedule simulate ring --hosts 16 --host dgx-h100 "
        "--bytes 64M");
    command
        ->add_option("algorithm", request->algorithm,
                     "Its name, as in WEFT_ALGO, or a file: schedules as text, or MSCCL's XML; all: every one that "
                     "can serve, the fastest first")
        ->required();
    add_machines(*command, *request);
    add_damage(*command, *request);
    const CLI::Option* bytes =
        command
            ->add_option("-b,--bytes", request->bytes,
                         "Of the largest buffer of the call, as benchmarks count them; 64K, 1M and the like")
            ->transform(CLI::AsSizeValue(false))
            ->check([](const std::string& text) {
                return std::strtoull(text.c_str(), nullptr, 10) <= simulated_bytes_most
                           ? std::string()
                           : fmt::format("{} bytes are more than {}T", text, simulated_bytes_most >> 40);
            })
            ->capture_default_str();
    const CLI::Option* channels =
        command->add_option("-c,--channels", request->channels, "Channels; else as many as fill the links")
            ->check(CLI::Range(1, simulated_channels_most));
    const CLI::Option* collective =
        command->add_option("--collective", request->collective, "What it is to do")->capture_default_str();
    const CLI::Option* root = command->add_option("--root", request->root, "Of a rooted collective")
                                  ->check(CLI::NonNegativeNumber)
                                  ->capture_default_str();
    add_any_order_flag(*command, request->said);
    command->add_option("--tile-bytes", request->tile_bytes, "Tiles of the whole, in place of the algorithm's")
        ->transform(CLI::AsSizeValue(false));
    command->add_flag("--every-rank", request->every_rank,
                      "Simulates all ranks, also where one host's would stand for all");
    command->add_flag("--anyway", request->anyway, "Simulates more than 200 million steps too, which takes long");
    command->add_option("--links", request->links_shown, "How many of the busiest links are shown")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--trace", request->trace,
                        "File for a trace that Chrome (chrome://tracing) and ui.perfetto.dev show");
    command
        ->add_option("--trace-ranks", request->trace_ranks, "How many ranks are traced, the lowest of those simulated")
        ->check(CLI::Range(1, simulated_ranks_most))
        ->capture_default_str();
    command->add_flag("--json", request->as_json, "For machines: one JSON object");
    command->add_option("--tune", request->tune,
                        "File for times of `all`, of every collective unless one is said, at sizes up to --bytes: "
                        "WEFT_TUNE_FILE for such hosts");
    command->callback([=] {
        // The options that a file must match.
        request->said.ranks = request->ranks;
        if (!collective->empty()) request->said.collective = request->collective;
        if (!root->empty()) request->said.root = request->root;
        if (!channels->empty()) request->said.channels = request->channels;
        if (bytes->count() > 0) request->said.bytes = request->bytes;
        report(request->tune.empty() ? simulate_request(*request) : tune(*request, collective->empty()));
    });
}

}  // namespace weft::internal::tools
