#include "src/gpu/engine/gpu_join.hpp"

#include <unistd.h>

#include <algorithm>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/gpu/proxy/network_memory.hpp"
#include "src/segment/failure_record.hpp"
#include "src/segment/liveness.hpp"
#include "src/selector/fused_rows.hpp"
#include "src/selector/network_kinds.hpp"

namespace weft::internal {

using cuda::BufferRegistry;
using cuda::Connections;
using cuda::Domain;
using cuda::ranks_max;

// The first rank of them reports it. With MPS sharing is as intended; without it, it is too slow to pass unnoticed.
void GpuJoin::report_sharing(const std::vector<int>& elsewhere) const {
    const std::string others = ranks_text(elsewhere);
    if (gpu_.kernels().mps())
        WEFT_LOG_RANK(gpu_.rank, info, init,
                      "shares device {} with {} of other processes, whose kernels run at once by MPS",
                      gpu_.device.ordinal(), others);
    else
        WEFT_LOG_RANK(gpu_.rank, warn, init,
                      "shares device {} with {} of other processes, without MPS: it runs one process at a time, so a "
                      "call waits for its turns, which is slow; nvidia-cuda-mps-control -d starts MPS, or make these "
                      "ranks threads of one process",
                      gpu_.device.ordinal(), others);
}

// All ranks decide alike, from the rows of all ranks.
bool GpuJoin::read_facts(std::vector<DeviceFacts>& facts) {
    const int rank = gpu_.rank;
    const Segment& group = *gpu_.group;
    if (group.header().agreed.gpu.path == GpuPath::copies) {
        gpu_.use_copies("WEFT_GPU_PATH is copies");
        if (rank == 0)
            WEFT_LOG_RANK(rank, info, init, "device memory is copied to the host's and back, which is slow: {}",
                          gpu_.copies_reason);
    }
    std::vector<int> elsewhere;  // ranks of other processes on this device
    bool first_here = true;      // of the ranks on it
    for (int other = 0; other < group.ranks(); ++other) {
        const RankRow& row = group.row(other);
        facts.push_back(row.gpu.facts);
        if (row.gpu.facts.use == DeviceFacts::copied && !gpu_.copies) {
            gpu_.use_copies("no kernels of Weft's run on some rank's device, as its log says");
            if (rank == 0)
                WEFT_LOG_RANK(rank, info, init,
                              "device memory is copied to the host's and back: no kernels of Weft's run on rank {}'s "
                              "device, as its log says",
                              other);
        }
        if (row.gpu.facts.use == DeviceFacts::none)
            return gpu_.disable(
                       fmt::format("rank {} joined without a device: it must be current in the thread that calls "
                                   "weftCommInitRank, on every rank",
                                   other)),
                   false;
        if (row.gpu.facts.use == DeviceFacts::refused)
            return gpu_.disable(fmt::format("rank {} cannot use its device: its log says why", other)), false;
        // One process may act as several hosts. Ranks with the same device are on the same machine.
        const bool here =
            group.local(other) ? row.process == group.row(rank).process : group.rank_info(other).pid == getpid();
        const bool shares = other != rank && std::equal(std::begin(row.gpu.facts.uuid), std::end(row.gpu.facts.uuid),
                                                        gpu_.device.facts.uuid);
        gpu_.sharing |= shares && here;
        first_here &= !shares || rank < other;
        if (shares && !here) elsewhere.push_back(other);
    }
    if (gpu_.copies) gpu_.sharing = false;
    if (!gpu_.copies && !elsewhere.empty() && first_here) report_sharing(elsewhere);
    return !gpu_.copies;
}

void GpuJoin::meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
                   std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines) {
    gpu_.group = std::move(group);
    gpu_.rank = rank;
    deadline_us_ = timeout_ms > 0 ? now_us() + timeout_ms * 1000 : 0;
    if (!gpu_.unsupported_reason().empty()) return;
    gpu_.catalog = std::move(catalog);
    gpu_.machines = std::move(machines);
    std::vector<DeviceFacts> facts;
    if (read_facts(facts)) plan(facts, identity);
}

void GpuJoin::plan(const std::vector<DeviceFacts>& facts, const net::Identity* identity) {
    const AgreedOptions& agreed = gpu_.group->header().agreed;
    const AgreedFacts& shared = gpu_.group->header().facts;
    const int ranks = gpu_.group->ranks(), rank = gpu_.rank;
    if (rank == 0 && options().gpu_threads % 32 != 0) {
        const std::string warning = fmt::format("WEFT_GPU_THREADS is {}, and kernels have whole warps: {} threads",
                                                options().gpu_threads, agreed.gpu.threads);
        warn_of_device_once(warning, warning);
    }
    if (ranks > ranks_max)
        return gpu_.fall_to_copies(fmt::format(
            "the communicator has {} ranks, and kernels serve device memory of up to {}", ranks, ranks_max));
    DeviceLayout& plans = gpu_.layout;
    plans = {ranks, 0, agreed.algo};
    plans.block_rules = {
        blocks_together(facts), {agreed.gpu.min_blocks, agreed.gpu.blocks}, size_t(agreed.gpu.packet_bytes)};
    const BlockLimits usual = plans.block_rules.limits_for({});
    plans.blocks_min = usual.least;
    plans.blocks_max = usual.most;
    plans.threads = agreed.gpu.threads;
    for (const DeviceFacts& one : facts) plans.support.capabilities &= one.capabilities;
    const Layout layout = gpu_.machines->device_layout(0);
    plans.rings = gpu_.machines->device_rings();
    plans.hosts = layout.host_count();
    if (plans.blocks_max < 1)
        return gpu_.fall_to_copies("the ranks that share a device are too many for it: their kernels must run at once");
    plans.rules = AlgoRules(plans.algo, layout, gpu_.catalog->rows());
    const NetworkLinks network = network_links(layout, shared.network.speed);
    StepAlgorithms steps =
        step_algorithms({.rows = gpu_.catalog->rows(),
                         .own = [&](Collective collective) { return needs_steps(plans, collective); },
                         .rules = plans.rules,
                         .channels = int(agreed.channels),
                         .blocks_max = plans.blocks_max,
                         .link_mbps = network.kind ? network.mbps : shared.link_mbps,
                         .network = network.kind,
                         .one_machine = shared.machines == 1,
                         .links_gbs = plans.hosts == 1 ? gpu_.machines->device_gbs() : 0,
                         .net_links = network.links,
                         .deterministic = agreed.deterministic != 0},
                        layout, rank);
    plans.steps = std::move(steps.rows);
    plans.excluded = std::move(steps.excluded);
    plans.tile_bytes = size_t(agreed.tile_bytes);
    Connections connections = std::move(steps.connections);
    if (plans.hosts == 1)
        gpu_.buffer_registry = std::make_unique<BufferRegistry>(gpu_.group, rank, gpu_.device.kernels);
    gpu_.domain =
        std::make_unique<Domain>(gpu_.group, rank, gpu_.device.kernels, std::move(connections), multicast_limits.ranks);
    if (agreed.gpu.launch_order != 0 && gpu_.sharing) {
        const char* const warning =
            "WEFT_GPU_LAUNCH_ORDER has no effect on communicators of which ranks share a device in one process: their "
            "kernels must run at once";
        warn_of_device_once(warning, warning);
    } else if (agreed.gpu.launch_order != 0) {
        gpu_.domain->launches().set_chain(cuda::LaunchChain::of_device(gpu_.device.ordinal()));
    }
    if (plans.hosts == 1) return;
    // The obstacle is reported to all ranks like any other.
    if (const Status listening = listen(*identity); !listening) gpu_.domain->object(listening);
}

// Chooses where the slots for other hosts lie, and posts addresses for the ranks there.
Status GpuJoin::listen(const net::Identity& identity) {
    const cuda::Context& context = gpu_.kernels().context();
    cuda::DomainMemory& memory = gpu_.domain->memory();
    gpu_.network = std::make_unique<DeviceNetwork>(gpu_.group, identity, gpu_.rank, memory.remote_ends(),
                                                   cuda::bus_id_of(context.driver(), context.device()));
    auto transport = gpu_.network->transport();
    if (!transport) return transport.take_status();
    auto slots = make_network_memory(context, {.rank = gpu_.rank,
                                               .transport = *transport,
                                               .sent_bytes = memory.network_bytes(false),
                                               .received_bytes = memory.network_bytes(true)});
    if (!slots) return slots.take_status();
    WEFT_LOG_RANK(gpu_.rank, info, init, "{}", slots->text);
    memory.set_network_slots(std::move(slots->sent), std::move(slots->received));
    return gpu_.network->listen(memory.remote_ends(), memory.network_slots(false).registered.get(),
                                memory.network_slots(true).registered.get());
}

Result<bool> GpuJoin::advance() {
    if (!gpu_.domain) return true;
    auto known = gpu_.domain->advance();
    if (!known) return known.take_status();
    if (!*known) {
        WEFT_TRY(check_others(gpu_.domain->missing()));
        return false;
    }
    if (const std::string obstacle = gpu_.domain->obstacle(); !obstacle.empty()) gpu_.fall_to_copies(obstacle);
    if (!gpu_.network) return true;
    auto connected = gpu_.network->connect(!gpu_.domain->fabric().works());
    if (connected && !*connected) WEFT_TRY(check_others(gpu_.network->missing()));
    return connected;
}

Status GpuJoin::check_others(const std::vector<int>& missing) {
    const int64_t now = now_us();
    Segment& group = *gpu_.group;
    if (group.aborted()) return FailureRecord(group).status();
    if (now < next_look_us_) return ok();
    next_look_us_ = now + 20'000;
    for (const int other : missing)
        if (!Liveness(group).alive(other))
            return fail(error::init_rank_died, "{} died while the ranks were joining their devices",
                        group.name_of(other))
                .about({.rank = other, .peer = gpu_.rank});
    WEFT_TRY(leaders_.look(group, gpu_.rank, missing, RemoteHealth::settled_us, now));
    if (deadline_us_ > 0 && now > deadline_us_)
        return fail(error::init_rank_missing,
                    "rank {} waited for {} to join their devices until the deadline (WEFT_INIT_TIMEOUT_MS)", gpu_.rank,
                    ranks_text(missing))
            .about({.rank = missing.empty() ? -1 : missing[0], .peer = gpu_.rank});
    return ok();
}

Status GpuJoin::begin(int64_t timeout_ms) {
    const int rank = gpu_.rank;
    if (!gpu_.domain) {
        if (gpu_.group && gpu_.device.kernels && rank == 0 && !gpu_.copies)
            WEFT_LOG_RANK(rank, info, init, "device memory is not served: {}", gpu_.unsupported_reason());
        return ok();
    }
    gpu_.timeout_ns = nanoseconds_of(timeout_ms);
    if (gpu_.domain->multicast().works())
        gpu_.layout.support.multicast = MulticastUse(gpu_.group->header().agreed.gpu.multicast);
    gpu_.layout.support.fabric = gpu_.domain->fabric().works();
    // Polls and clears of lines in host memory are slow. A fabric's memory is on devices, also if one host's is not.
    if (!gpu_.layout.support.fabric && !gpu_.domain->fallback_reason().empty())
        gpu_.layout.block_rules.packet_bytes = std::min(gpu_.layout.block_rules.packet_bytes, epoch_packet_bytes);
    if (const std::string& why = gpu_.domain->fabric().obstacle(); !why.empty() && rank == 0)
        warn_of_device_once("the hosts are in one NVLink domain, but use the network between them: " + why, why);
    if (const std::string& why = gpu_.domain->multicast().obstacle(); !why.empty() && rank == 0)
        warn_of_device_once("the switch does not reduce and hand out messages of device memory: " + why, why);
    gpu_.exports_buffers = gpu_.buffer_registry && gpu_.domain->fallback_reason().empty();
    if (gpu_.exports_buffers) {
        gpu_.buffer_registry->open();
        if (gpu_.layout.ranks <= copying_ranks_max) gpu_.domain->make_copy_signals();
        if (gpu_.layout.support.multicast != multicast_off) gpu_.domain->make_switched_memory(gpu_.device.kernels);
    }
    if (gpu_.network) WEFT_TRY(gpu_.network->begin(gpu_.domain->memory().remote_ends(), gpu_.domain->reports().ended));
    WEFT_LOG_RANK(rank, info, init, "serves memory of device {}, {} blocks of a kernel at most{}{}",
                  gpu_.device.ordinal(), gpu_.layout.blocks_max,
                  gpu_.sharing ? ", which it shares with ranks of this process" : "", gpu_.domain->fallback_text());
    return ok();
}

}  // namespace weft::internal
