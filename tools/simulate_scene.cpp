#include "tools/simulate_scene.hpp"

#include <algorithm>
#include <cmath>

#include "src/base/file.hpp"
#include "src/base/options.hpp"
#include "src/base/printing.hpp"
#include "src/gpu/engine/device_steps.hpp"
#include "src/registry.hpp"
#include "tools/algorithm_named.hpp"
#include "tools/simulated_call.hpp"
#include "topology/detect/discover.hpp"
#include "topology/fabric/graph_fabric.hpp"
#include "topology/files/topology_xml.hpp"
#include "topology/model/speeds.hpp"
#include "topology/search/rails.hpp"
#include "topology/search/rank_orders.hpp"

namespace weft::internal::tools {

namespace {

// The number of blocks that fill a device's links to the others or, between hosts, its network adapter.
int channels_that_fill(const HostKind& kind, int hosts) {
    if (hosts == 1) return kind.channels;
    return std::clamp(int(std::ceil(kind.net_bytes_per_us / kind.block_bytes_per_us)), 1, kind.channels);
}

// If one of the numbers is missing, the hosts are filled.
Status place_on_equal(const SimulateRequest& request, Scene& scene) {
    const HostKind& kind = scene.kind;
    int ranks_a_host = request.ranks;
    if (request.ranks == 0 && request.hosts == 0)
        return fail(error::command_option, "--ranks, --hosts or --topology is missing");
    if (request.ranks == 0) {
        scene.hosts = request.hosts;
        ranks_a_host = kind.ranks;
    } else if (request.hosts > 0 || request.ranks > kind.ranks) {
        const bool full = request.hosts == 0;
        scene.hosts = full ? request.ranks / kind.ranks : request.hosts;
        ranks_a_host = full ? kind.ranks : request.ranks / request.hosts;
        if (ranks_a_host == 0 || scene.hosts * ranks_a_host != request.ranks)
            return fail(error::command_option, "{} ranks cannot be divided equally among {}", request.ranks,
                        request.hosts > 0 ? fmt::format("{} hosts", request.hosts)
                                          : fmt::format("hosts of {} ranks", kind.ranks));
    }
    if (kind.devices && ranks_a_host > kind.ranks)
        return fail(error::command_option, "a {} has {} devices, not {}", kind.name, kind.ranks, ranks_a_host);
    if (int64_t(scene.hosts) * ranks_a_host > simulated_ranks_most)
        return fail(error::schedule_limit, "{} hosts of {} ranks are more than {} ranks", scene.hosts, ranks_a_host,
                    simulated_ranks_most);
    return seat_on_equal(request, scene.hosts, ranks_a_host, scene);
}

Status read_graph(const SimulateRequest& request, Scene& scene) {
    auto text = read_file(request.topology, topology::topology_file_bytes_most, Pipes::read);
    if (!text) return text.take_status();
    auto read = topology::discover_file(options().hwloc_library, *text);
    if (!read) return fail(error::command_input, "{}: {}", request.topology, read.status().sentence());
    scene.graph = std::make_shared<topology::Graph>(std::move(read->graph));
    for (const std::string& note : read->notes) scene.notes.push_back(request.topology + ": " + note);
    return ok();
}

// Places ranks on a graph's machines, with the rings that a communicator there would have.
Status place_on_graph(const SimulateRequest& request, Scene& scene) {
    const int copies = std::max(1, request.hosts);
    if (request.ranks % copies != 0)
        return fail(error::topology_placement, "{} ranks cannot be divided equally among {} machines", request.ranks,
                    copies);
    auto job = topology::job_of_ranks(*scene.graph, copies, request.ranks / copies);
    if (!job) return fail(job.status(), "{}: {}", request.topology, job.status().sentence());
    scene.job = std::move(*job);
    return seat_on_graph(request, scene);
}

}  // namespace

Status seat_on_equal(const SimulateRequest& request, int hosts, int ranks_a_host, Scene& scene) {
    const HostsFabric fabric(scene.kind, hosts, ranks_a_host);
    scene.hosts = hosts;
    scene.layout = {fabric.ranks(), 0, fabric.hosts()};
    scene.machines = scene.kind.name;
    scene.net_bytes_per_us = scene.kind.net_bytes_per_us;
    scene.net_links = scene.kind.devices ? ranks_a_host : 1;
    scene.parameters.channels = request.channels > 0 ? request.channels : channels_that_fill(scene.kind, hosts);
    return ok();
}

Status seat_on_graph(const SimulateRequest& request, Scene& scene) {
    const auto fabric = topology::GraphFabric::make(scene.job, scene.kind);
    if (!fabric) return fail(fabric.status(), "{}: {}", request.topology, fabric.status().sentence());
    scene.layout = {fabric->ranks(), 0, fabric->hosts()};
    scene.hosts = scene.layout.host_count();
    scene.net_links = 1;
    if (scene.hosts > 1) {
        scene.layout.rails = topology::rails_of(scene.job);
        const auto& rails = scene.layout.rails;
        scene.net_links = scene.network ? network_links(scene.layout, speed_of(*scene.network, request.rails)).links
                                        : std::max(1, 1 + *std::max_element(rails.begin(), rails.end()));
    }
    const size_t slash = request.topology.rfind('/');
    scene.machines = request.topology.substr(slash == std::string::npos ? 0 : slash + 1);
    for (const int port : scene.graph->of_kind(topology::NodeKind::port))
        scene.net_bytes_per_us =
            std::max(scene.net_bytes_per_us, 1000 * topology::port_speed(scene.graph->node(port).port).bandwidth_gbs);
    if (scene.network) scene.net_bytes_per_us = scene.kind.net_bytes_per_us;
    if (scene.net_bytes_per_us == 0) scene.net_bytes_per_us = scene.kind.net_bytes_per_us;
    scene.parameters.channels = request.channels > 0 ? request.channels : channels_that_fill(scene.kind, scene.hosts);
    take_rings_of(request, scene.job, scene);
    return ok();
}

void take_rings_of(const SimulateRequest& request, const topology::Job& job, Scene& scene) {
    scene.layout.ring_orders.clear();
    scene.alternates = false;
    scene.links_gbs = 0;
    const auto channels = topology::search(job);
    if (!channels) {
        scene.notes.push_back(fmt::format("rings are in rank order: {}", channels.status().sentence()));
        return;
    }
    if (channels->channels == 0) return;
    topology::take_rings(*channels, scene.layout);
    scene.alternates = channels->alternates;
    scene.links_gbs = channels->found_gbs;
    if (request.channels == 0) scene.parameters.channels = std::min(channels->channels, simulated_channels_most);
}

namespace {

// On devices a message also passes from the kernel to the proxy and back.
double net_us_of(const NetworkKind& network, bool devices) {
    return network.latency_us + (devices ? proxies_us : -network.message_us);
}

Status take_network(const SimulateRequest& request, Scene& scene) {
    if (request.network.empty())
        return request.rails == 1
                   ? ok()
                   : fail(error::command_option, "--rails counts ports of RDMA devices: name their --network");
    scene.network = find_network_kind(request.network);
    if (!scene.network)
        return fail(error::command_option, "network `{}` does not exist; the networks are {}", request.network,
                    network_kind_names());
    HostKind& kind = scene.kind;
    scene.link_mbps = int64_t(scene.network->mbps) * request.rails;
    kind.net_bytes_per_us = 1 / scene.network->us_per_byte(scene.link_mbps);
    kind.net_overhead_us = kind.devices ? 0 : scene.network->message_us / 2;
    kind.net_us = net_us_of(*scene.network, kind.devices);
    if (kind.devices) kind.carrier_us = proxied_message_us(*scene.network) / 2;
    return ok();
}

Status find_kind(const SimulateRequest& request, Scene& scene) {
    const HostKind* const kind = scene.graph && request.host.empty()
                                     ? &topology::host_kind_like(*scene.graph)
                                     : find_host_kind(request.host.empty() ? "dgx-h100" : request.host);
    if (!kind)
        return fail(error::command_option, "kind of host `{}` does not exist; the kinds are {}", request.host,
                    host_kind_names());
    scene.kind = *kind;
    WEFT_TRY(take_network(request, scene));
    for (const std::string& text : request.constants) {
        auto measured = named_number("--set", text);
        if (!measured) return measured.take_status();
        auto with = with_constant(scene.kind, measured->name, measured->value);
        if (!with) return with.take_status();
        scene.kind = *with;
        if (measured->name == "start_us" || measured->name == "peer_us" || measured->name == "net_us")
            scene.times.push_back(*measured);
    }
    scene.kind = with_working_set(scene.kind, 2 * request.bytes);  // input and output
    if (scene.graph && scene.kind.devices == scene.graph->of_kind(topology::NodeKind::gpu).empty())
        return fail(error::command_option, "{} has {}, but a {} has {}; name a --host of the same kind, or none",
                    request.topology, scene.kind.devices ? "no GPU" : "GPUs", scene.kind.name,
                    scene.kind.devices ? "devices" : "threads alone");
    if (request.protocol.empty()) return ok();
    const auto protocol = protocol_named(request.protocol);
    if (!protocol)
        return fail(error::command_option, "protocol `{}` does not exist; the protocols are simple, ll128 and ll",
                    request.protocol);
    if (!scene.kind.devices)
        return fail(error::command_option, "--protocol is for devices; the ranks of a {} are threads", scene.kind.name);
    scene.protocol = *protocol;
    return ok();
}

}  // namespace

Status read_algorithm_file(SimulateRequest& request) {
    if (!is_algorithm_file(request.algorithm)) return ok();
    auto file = algorithm_of_file(request.algorithm, request.said);
    if (!file) return file.take_status();
    WEFT_TRY(prove(**file));
    print_assumption(request.algorithm, (*file)->file);
    request.file = std::move(*file);
    const Schedule& first = request.file->user.schedules[0];
    request.ranks = first.ranks;
    request.collective = name_of(first.collective);
    request.root = std::max(0, first.root);
    return ok();
}

Status find_rows(const SimulateRequest& request, int root, Scene& scene) {
    scene.rows.clear();
    const auto meant = collective_meant(request.collective);
    if (request.algorithm == "all" && meant)
        for (const Algorithm& row : registry::algorithms())
            if (*meant == row.collective && !row.on_demand && !(row.many_slots && scene.kind.devices) &&
                !row.refusal(scene.layout))
                scene.rows.push_back(&row);
    if (request.file) {
        scene.rows.push_back(&request.file->row);
        root = request.file->user.schedules[0].root;
        scene.parameters.channels = request.file->user.schedules[0].channels;
    } else if (scene.rows.empty()) {
        auto named = algorithm_named(request.algorithm, request.collective);
        if (!named) return named.take_status();
        scene.rows.push_back(*named);
    }
    const Algorithm& row = *scene.rows[0];
    if (const char* refusal = row.refusal(scene.layout))
        return fail(error::command_option, "{} {}: {} ranks on {} hosts", row.name, refusal, scene.layout.ranks,
                    scene.hosts);
    const bool rooted = facts_of(row.collective).rooted;
    if (rooted && root >= scene.layout.ranks)
        return fail(error::command_option, "--root {} is not one of the {} ranks, 0 to {}", root, scene.layout.ranks,
                    scene.layout.ranks - 1);
    scene.parameters.root = rooted ? root : -1;
    return ok();
}

Result<Scene> scene_of(const SimulateRequest& request) {
    Scene scene;
    if (!request.topology.empty()) WEFT_TRY(read_graph(request, scene));
    WEFT_TRY(find_kind(request, scene));
    WEFT_TRY(scene.graph ? place_on_graph(request, scene) : place_on_equal(request, scene));
    WEFT_TRY(find_rows(request, request.root, scene));
    if (request.file) {
        const Schedule& first = request.file->user.schedules[0];
        if (int64_t(request.bytes) < first.least_bytes || int64_t(request.bytes) > first.most_bytes)
            scene.notes.push_back(
                fmt::format("{} is meant for {} to {} bytes", first.algorithm, first.least_bytes, first.most_bytes));
    }
    return scene;
}

Result<std::unique_ptr<Fabric>> fabric_of(const Scene& scene, const Algorithm& row) {
    HostKind kind = with_protocol(scene.kind, scene.protocol, row.tree);
    // The protocols' own time is that of NCCL's network.
    if (scene.network) kind.net_us = net_us_of(*scene.network, kind.devices);
    for (const NamedNumber& given : scene.times) {
        auto with = with_constant(kind, given.name, given.value);
        if (!with) return with.take_status();
        kind = *with;
    }
    std::unique_ptr<Fabric> fabric;
    if (!scene.graph) {
        fabric = std::make_unique<HostsFabric>(kind, scene.hosts, scene.layout.ranks / scene.hosts);
        return fabric;
    }
    auto made = topology::GraphFabric::make(scene.job, kind);
    if (!made) return made.take_status();
    if (scene.alternates) made->turn_by_two();
    fabric = std::make_unique<topology::GraphFabric>(std::move(*made));
    return fabric;
}

constexpr static uint64_t steps_most = 200'000'000;  // of a simulation without --anyway

// Announces a long simulation before it starts, and refuses one that takes too long.
static Status weigh(const char* name, bool anyway, int ranks, const SimulatedEffort& effort) {
    constexpr uint64_t told_from = 20'000'000;
    // For ranks beyond the caches and non-empty messages (docs/guide/simulation.md).
    constexpr double us_a_step = 1.5;
    const auto text = [&](uint64_t steps) {
        const double minutes = double(steps) * us_a_step / 60e6;
        std::string long_time = fmt::format("some {} million steps of {} ranks, ", steps / 1'000'000, effort.ranks);
        long_time += minutes < 120 ? fmt::format("up to {:.0f} minutes", std::ceil(minutes))
                                   : fmt::format("up to {:.0f} hours", minutes / 60);
        const char* why =
            effort.too_uneven ? "; many chunks are empty, so every rank is simulated: fewer --channels or more --bytes "
                                "let one host stand for all"
            : effort.ranks == ranks
                ? "; every rank is simulated, for no host can stand for the others: say fewer --ranks or --hosts"
                : "; the message is of very many tiles: say fewer --bytes, or more --tile-bytes";
        return fmt::format("{}: {}{}", name, long_time, why);
    };
    if (!anyway && effort.steps > steps_most)
        return fail(error::schedule_limit, "{}. More than {} million steps are simulated only with --anyway",
                    text(uint64_t(double(effort.steps) / effort.prepared * effort.ranks)), steps_most / 1'000'000);
    if (effort.prepared == effort.ranks && effort.steps > told_from) print_error("{}\n", text(effort.steps));
    return ok();
}

SimulatedCall call_of(const SimulateRequest& request, const Scene& scene, const Algorithm& row) {
    HostKind kind = scene.kind;
    kind.net_bytes_per_us = scene.net_bytes_per_us;
    SimulatedCall call = simulated_call(row, kind, scene.layout, request.bytes, request.tile_bytes);
    call.schedule = [&row, parameters = scene.parameters, layout = scene.layout](int rank) mutable {
        layout.rank = rank;
        return row.schedule(layout, parameters);
    };
    if (request.every_rank) call.symmetry = Symmetry::none;
    if (!request.anyway) call.steps_most = steps_most;
    call.weigh = [&row, anyway = request.anyway, ranks = scene.layout.ranks](const SimulatedEffort& effort) {
        return weigh(row.name, anyway, ranks, effort);
    };
    return call;
}

}  // namespace weft::internal::tools
