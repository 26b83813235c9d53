#include "tools/simulate_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "src/registry.hpp"
#include "src/schedule/hosts_fabric.hpp"
#include "src/schedule/simulator.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/simulated_call.hpp"

namespace weft::tools {
namespace {

using Json = nlohmann::ordered_json;

// What fits some gigabytes of memory, where every rank is simulated.
constexpr int ranks_most = 1'000'000;
constexpr int channels_most = 64;
constexpr int links_shown = 5;

struct Request {
    std::string algorithm;
    std::string collective = name_of(Collective::all_reduce);
    std::string host = "dgx-h100";
    std::string protocol = "simple";
    uint64_t bytes = 1 << 20;  // of the whole
    uint64_t tile_bytes = 0;
    int root = 0;
    int ranks = 0, hosts = 0;  // 0: not said
    int channels = 0;          // 0: as many as fill the links
    bool every_rank = false;
    bool as_json = false;
};

// Everything that the words of a request stand for.
struct Scene {
    const Algorithm* row = nullptr;
    Layout layout = {};
    Parameters parameters = {};
    HostKind kind = {};
    int hosts = 1, ranks_a_host = 1;
};

std::string list_of_kinds() {
    std::string names;
    for (const HostKind& kind : host_kinds()) names += fmt::format("{}{}", names.empty() ? "" : ", ", kind.name);
    return names;
}

// Either number may be missing: then hosts are as full as they get.
Status place(const Request& request, const HostKind& kind, Scene& scene) {
    if (request.ranks == 0 && request.hosts == 0) return fail(weftInvalidArgument, "say --ranks or --hosts or both");
    if (request.ranks == 0) {
        scene.hosts = request.hosts;
        scene.ranks_a_host = kind.ranks;
    } else if (request.hosts > 0 || request.ranks > kind.ranks) {
        const bool full = request.hosts == 0;
        scene.hosts = full ? request.ranks / kind.ranks : request.hosts;
        scene.ranks_a_host = full ? kind.ranks : request.ranks / request.hosts;
        if (scene.ranks_a_host == 0 || scene.hosts * scene.ranks_a_host != request.ranks)
            return fail(weftInvalidArgument, "{} ranks do not fill {} alike, and hosts are equal here", request.ranks,
                        request.hosts > 0 ? fmt::format("{} hosts", request.hosts)
                                          : fmt::format("hosts of {} ranks", kind.ranks));
    } else {
        scene.ranks_a_host = request.ranks;
    }
    if (kind.devices && scene.ranks_a_host > kind.ranks)
        return fail(weftInvalidArgument, "a {} has {} devices, not {}", kind.name, kind.ranks, scene.ranks_a_host);
    if (int64_t(scene.hosts) * scene.ranks_a_host > ranks_most)
        return fail(weftInvalidArgument, "{} hosts of {} ranks are more than {} ranks", scene.hosts, scene.ranks_a_host,
                    ranks_most);
    return ok();
}

// Blocks that fill a device's links to the others, or, between hosts, its adapter.
int channels_that_fill(const HostKind& kind, int hosts) {
    if (hosts == 1) return kind.channels;
    return std::clamp(int(std::ceil(kind.net_bytes_per_us / kind.block_bytes_per_us)), 1, kind.channels);
}

Result<Scene> scene_of(const Request& request) {
    auto row = algorithm_named(request.algorithm, request.collective);
    if (!row) return row.take_status();
    const HostKind* kind = find_host_kind(request.host);
    if (!kind)
        return fail(weftInvalidArgument, "there is no kind of host `{}`; there are {}", request.host, list_of_kinds());
    const auto protocol = protocol_named(request.protocol);
    if (!protocol)
        return fail(weftInvalidArgument, "there is no protocol `{}`; there are simple, ll128, ll", request.protocol);
    Scene scene;
    scene.row = *row;
    scene.kind = kind_for(*kind, *protocol, *scene.row);
    WEFT_TRY(place(request, *kind, scene));
    const HostsFabric fabric(scene.kind, scene.hosts, scene.ranks_a_host);
    scene.layout = {fabric.ranks(), 0, fabric.hosts()};
    const bool rooted = facts_of(scene.row->collective).rooted;
    if (rooted && request.root >= scene.layout.ranks)
        return fail(weftInvalidArgument, "there is no rank {} of {} to be the root; there are 0..{}", request.root,
                    scene.layout.ranks, scene.layout.ranks - 1);
    scene.parameters = {.channels = request.channels > 0 ? request.channels : channels_that_fill(*kind, scene.hosts),
                        .root = rooted ? request.root : -1};
    if (const char* refusal = scene.row->refusal(scene.layout))
        return fail(weftInvalidArgument, "{} {}: {} ranks on {} hosts", scene.row->name, refusal, scene.layout.ranks,
                    scene.hosts);
    return scene;
}

Result<Simulation> run(const Request& request, const Scene& scene, const HostsFabric& fabric) {
    SimulatedCall call = simulated_call(*scene.row, scene.kind, scene.layout, request.bytes, request.tile_bytes);
    call.schedule = [&scene, layout = scene.layout](int rank) mutable {
        layout.rank = rank;
        return scene.row->build(layout, scene.parameters);
    };
    if (request.every_rank) call.symmetry = Symmetry::none;
    return simulate(fabric, call);
}

double bus_factor(Collective collective, int ranks) {
    const double others = double(ranks - 1) / ranks;
    if (ranks == 1) return 1;
    if (collective == Collective::all_reduce) return 2 * others;
    return facts_of(collective).parted ? others : 1;
}

double idle_share(const Simulation& found) {
    double idle = 0;
    for (const RankUse& each : found.ranks) idle += each.idle;
    return idle / double(found.ranks.size());
}

void print_json(const Request& request, const Scene& scene, const HostsFabric& fabric, const Simulation& found) {
    const double algorithm_bandwidth = double(request.bytes) / found.us / 1e3;
    Json links = Json::array();
    for (size_t each = 0; each < found.links.size() && each < links_shown; ++each) {
        const LinkUse& use = found.links[each];
        links.push_back({{"name", fabric.link_name(use.link)},
                         {"alike", use.alike},
                         {"bytes", use.bytes},
                         {"load", use.load},
                         {"busy", use.busy}});
    }
    const Json all = {{"algorithm", scene.row->name},
                      {"collective", name_of(scene.row->collective)},
                      {"host", scene.kind.name},
                      {"hosts", scene.hosts},
                      {"ranks", scene.layout.ranks},
                      {"channels", scene.parameters.channels},
                      {"bytes", request.bytes},
                      {"tile_bytes", found.tile_bytes},
                      {"tiles", found.tiles},
                      {"us", found.us},
                      {"algbw", algorithm_bandwidth},
                      {"busbw", algorithm_bandwidth * bus_factor(scene.row->collective, scene.layout.ranks)},
                      {"idle", idle_share(found)},
                      {"critical_rank", found.critical_rank},
                      {"messages", found.messages},
                      {"message_bytes", found.message_bytes},
                      {"ranks_simulated", found.ranks_simulated},
                      {"chunks_of_mean_size", found.even},
                      {"events", found.events},
                      {"links", links}};
    fmt::print("{}\n", all.dump(2));
}

void print_table(const Request& request, const Scene& scene, const HostsFabric& fabric, const Simulation& found) {
    const double algorithm_bandwidth = double(request.bytes) / found.us / 1e3;
    fmt::print("{} {} of {} bytes, {} ranks on {} {}, {} tile{} of {} bytes a part\n\n", scene.row->name,
               name_of(scene.row->collective), request.bytes, scene.layout.ranks, scene.hosts, scene.kind.name,
               found.tiles, found.tiles == 1 ? "" : "s", found.tile_bytes);
    fmt::print("{:>14} {:>12} {:>12} {:>8} {:>14} {:>10}\n", "time us", "algbw GB/s", "busbw GB/s", "idle %",
               "critical rank", "messages");
    fmt::print("{:>14.2f} {:>12.3f} {:>12.3f} {:>8.1f} {:>14} {:>10}\n\n", found.us, algorithm_bandwidth,
               algorithm_bandwidth * bus_factor(scene.row->collective, scene.layout.ranks), 100 * idle_share(found),
               found.critical_rank, found.messages);
    fmt::print("{:<32} {:>8} {:>8} {:>8} {:>16}\n", "busiest links", "alike", "load %", "busy %", "bytes");
    for (size_t each = 0; each < found.links.size() && each < links_shown; ++each) {
        const LinkUse& use = found.links[each];
        fmt::print("{:<32} {:>8} {:>8.1f} {:>8.1f} {:>16.0f}\n", fabric.link_name(use.link), use.alike, 100 * use.load,
                   100 * use.busy, use.bytes);
    }
    if (found.ranks_simulated < scene.layout.ranks)
        fmt::print("\n{} rank{} simulated, which stand for all{}\n", found.ranks_simulated,
                   found.ranks_simulated == 1 ? "" : "s",
                   found.even ? "; chunks counted as of one size, empty ones too" : "");
}

Status simulate_request(const Request& request) {
    auto scene = scene_of(request);
    if (!scene) return scene.take_status();
    const HostsFabric fabric(scene->kind, scene->hosts, scene->ranks_a_host);
    auto found = run(request, *scene, fabric);
    if (!found) return found.take_status();
    (request.as_json ? print_json : print_table)(request, *scene, fabric, *found);
    return ok();
}

}  // namespace

void add_simulate_command(CLI::App& schedule_command, std::function<void(const Status&)> report) {
    auto request = std::make_shared<Request>();
    CLI::App* command = schedule_command.add_subcommand(
        "simulate",
        "Predicts a collective on hosts that are not there: weft schedule simulate ring --hosts 16 --host dgx-h100 "
        "--bytes 64M");
    command->add_option("algorithm", request->algorithm, "Its name, as in WEFT_ALGO")->required();
    command->add_option("-n,--ranks", request->ranks, "Ranks of the communicator")->check(CLI::Range(1, ranks_most));
    command->add_option("--hosts", request->hosts, "Hosts that the ranks are on, as many on each")
        ->check(CLI::Range(1, ranks_most));
    command->add_option("--host", request->host, "Their kind: " + list_of_kinds())->capture_default_str();
    command
        ->add_option("-b,--bytes", request->bytes,
                     "Of the largest buffer of the call, as benchmarks count them; 64K, 1M and the like")
        ->transform(CLI::AsSizeValue(false))
        ->capture_default_str();
    command->add_option("-c,--channels", request->channels, "Channels; else as many as fill the links")
        ->check(CLI::Range(1, channels_most));
    command->add_option("--collective", request->collective, "What it is to do")->capture_default_str();
    command->add_option("--root", request->root, "Of a rooted collective")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command
        ->add_option("--protocol", request->protocol,
                     "How devices move bytes over connections, with NCCL's constants: simple, ll128, ll")
        ->capture_default_str();
    command->add_option("--tile-bytes", request->tile_bytes, "Tiles of the whole, in place of the algorithm's")
        ->transform(CLI::AsSizeValue(false));
    command->add_flag("--every-rank", request->every_rank,
                      "Simulates all ranks, also where one host's would stand for all");
    command->add_flag("--json", request->as_json, "For machines: one JSON object");
    command->callback([=] { report(simulate_request(*request)); });
}

}  // namespace weft::tools
