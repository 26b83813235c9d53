// device_joining.cpp: how the ranks of a communicator get support for device memory, or find the reason why not.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>
#include <vector>

#include "src/base/clock.hpp"
#include "src/base/log.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/gpu/engine/gpu_engine_state.hpp"

namespace weft::internal {

using cuda::BufferRegistry;
using cuda::Connections;
using cuda::Context;
using cuda::device_count;
using cuda::Domain;
using cuda::domain_ranks_max;
using cuda::Driver;
using cuda::KernelSet;
using cuda::ranks_max;
using cuda::RelaxedCapture;

namespace {

// Warns once per process for each reason, for any number of communicators and devices. The sentence names the first
// device.
void warn_of_device_once(const std::string& sentence, std::string reason) {
    struct Said {
        std::mutex mutex;
        std::set<std::string> reasons;
    };
    static PerProcess<Said> of_process;
    Said& said = of_process.get();
    {
        std::lock_guard lock(said.mutex);
        if (!said.reasons.insert(std::move(reason)).second) return;
    }
    WEFT_LOG(warn, init, "{}", sentence);
}
void warn_of_device_once(const std::string& sentence) { warn_of_device_once(sentence, sentence); }

// The reason without the number of its device.
std::string of_any_device(std::string reason, int device) {
    const std::string number = std::to_string(device), name = "device " + number;
    for (size_t at = 0; (at = reason.find(name, at)) != std::string::npos; ++at)
        if (at + name.size() == reason.size() || !isdigit(static_cast<unsigned char>(reason[at + name.size()])))
            reason.erase(at + name.size() - number.size(), number.size());
    return reason;
}

}  // namespace

const char* GpuEngine::why_none() { return "none was current in the thread that called weftCommInitRank"; }

Result<std::unique_ptr<GpuEngine>> GpuEngine::find(int which) {
    if (which < 0 && !Driver::in_use()) return std::unique_ptr<GpuEngine>();
    auto driver = Driver::get();
    if (!driver) {
        if (which >= 0) return driver.take_status();
        warn_of_device_once("no device: " + driver.status().sentence());
        return std::unique_ptr<GpuEngine>();
    }
    auto state = std::make_unique<State>();
    state->driver = *driver;
    // A capture in any thread would forbid opening a context, and would be invalidated by it.
    const RelaxedCapture relaxed(**driver);
    const auto made = [&] { return std::unique_ptr<GpuEngine>(new GpuEngine(std::move(state))); };
    CUcontext context = nullptr;
    if (which == current) {
        WEFT_TRY((*driver)->check((*driver)->CtxGetCurrent(&context), "query the current context"));
        if (context != nullptr) {
            CUdevice device = 0;
            WEFT_TRY((*driver)->check((*driver)->CtxGetDevice(&device), "query the device of the current context"));
            which = device;
        }
    } else if (which >= 0) {
        auto count = device_count(**driver);
        if (!count) return count.take_status();
        if (which >= *count)
            return fail(error::argument_device, "device {} does not exist: this process sees {} devices, from 0 on",
                        which, *count);
    }
    if (which < 0) {
        state->unsupported_reason =
            "no device belongs to this communicator: one must be current in the thread that calls weftCommInitRank "
            "(cudaSetDevice, cuCtxSetCurrent)";
        return made();
    }
    state->facts.ordinal = which;
    state->facts.use = DeviceFacts::refused;
    auto bare = Context::retain(**driver, which);
    if (!bare) {
        state->unsupported_reason = bare.status().sentence();
    } else if (context != nullptr && context != bare->handle()) {
        state->unsupported_reason = fmt::format(
            "the context that was current is not device {}'s primary one, which cudaSetDevice makes current", which);
    } else if (auto kernels = KernelSet::of_device(**driver, which)) {
        state->kernels = std::move(*kernels);
        state->facts = state->kernels->facts();
    } else {
        state->bare = std::move(*bare);
        state->facts.use = DeviceFacts::copied;
        const std::string why = kernels.status().sentence();
        warn_of_device_once(
            fmt::format("no kernels of Weft's run on device {}, so its memory is copied to the host's and back, which "
                        "is slow: {} (further devices are not reported)",
                        which, why),
            "copied: " + of_any_device(why, which));
    }
    if (!state->unsupported_reason.empty())
        warn_of_device_once(fmt::format("device {} is not used: {} (further devices are not reported)", which,
                                        state->unsupported_reason),
                            "not used: " + of_any_device(state->unsupported_reason, which));
    return made();
}

// The first rank of them reports it. With MPS sharing is as intended; without it, it is too slow to pass unnoticed.
void GpuEngine::State::tell_of_sharing(const std::vector<int>& elsewhere) const {
    const std::string others = ranks_text(elsewhere);
    if (kernels->mps())
        WEFT_LOG_RANK(rank, info, init, "shares device {} with {} of other processes, whose kernels run at once by MPS",
                      device(), others);
    else
        WEFT_LOG_RANK(rank, warn, init,
                      "shares device {} with {} of other processes, without MPS: it runs one process at a time, so a "
                      "call waits for its turns, which is slow; nvidia-cuda-mps-control -d starts MPS, or make these "
                      "ranks threads of one process",
                      device(), others);
}

// All ranks decide alike, from the rows of all ranks.
void GpuEngine::meet(std::shared_ptr<Segment> group, const net::Identity* identity, int rank, int64_t timeout_ms,
                     std::shared_ptr<const Catalog> catalog, std::shared_ptr<const Machines> machines) {
    State& s = *state_;
    s.group = std::move(group);
    s.rank = rank;
    s.deadline_us = timeout_ms > 0 ? now_us() + timeout_ms * 1000 : 0;
    if (!s.unsupported_reason.empty()) return;
    const AgreedOptions& agreed = s.group->header().agreed;
    const int ranks = s.group->ranks();
    if (agreed.gpu_path == GpuPath::copies) {
        s.copies = true;
        if (rank == 0)
            WEFT_LOG_RANK(rank, info, init,
                          "device memory is copied to the host's and back, which is slow: WEFT_GPU_PATH is copies");
    }
    std::vector<DeviceFacts> facts;
    std::vector<int> elsewhere;  // ranks of other processes on this device
    bool first_here = true;      // of the ranks on it
    for (int other = 0; other < ranks; ++other) {
        const RankRow& row = s.group->row(other);
        facts.push_back(row.device);
        if (row.device.use == DeviceFacts::copied && !s.copies) {
            s.copies = true;
            if (rank == 0)
                WEFT_LOG_RANK(rank, info, init,
                              "device memory is copied to the host's and back: no kernels of Weft's run on rank {}'s "
                              "device, as its log says",
                              other);
        }
        if (row.device.use == DeviceFacts::none)
            return s.disable(
                fmt::format("rank {} joined without a device: it must be current in the thread that calls "
                            "weftCommInitRank, on every rank",
                            other));
        if (row.device.use == DeviceFacts::refused)
            return s.disable(fmt::format("rank {} cannot use its device: its log says why", other));
        // One process may act as several hosts. Ranks with the same device are on the same machine.
        const bool here = s.group->local(other) ? row.process == s.group->row(rank).process
                                                : s.group->rank_info(other).pid == getpid();
        const bool shares =
            other != rank && std::equal(std::begin(row.device.uuid), std::end(row.device.uuid), s.facts.uuid);
        s.sharing |= shares && here;
        first_here &= !shares || rank < other;
        if (shares && !here) elsewhere.push_back(other);
    }
    if (s.copies) {
        s.sharing = false;  // no stream waits for another stream's kernels
        return;
    }
    if (!elsewhere.empty() && first_here) s.tell_of_sharing(elsewhere);
    if (rank == 0 && options().gpu_threads % 32 != 0)
        warn_of_device_once(fmt::format("WEFT_GPU_THREADS is {}, and kernels have whole warps: {} threads",
                                        options().gpu_threads, agreed.gpu_threads));
    if (ranks > domain_ranks_max)
        return s.disable(fmt::format("the communicator has {} ranks: this version serves device memory of up to {}",
                                     ranks, domain_ranks_max));
    s.layout = {ranks, blocks_together(facts), agreed.algo};
    if (agreed.gpu_blocks > 0) s.layout.blocks_max = std::min(s.layout.blocks_max, agreed.gpu_blocks);
    s.layout.threads = agreed.gpu_threads;
    for (const DeviceFacts& one : facts) s.layout.capabilities &= one.capabilities;
    const Layout layout = machines->device_layout(0);
    s.layout.rings = machines->device_rings();
    s.layout.hosts = layout.host_count();
    if (s.layout.blocks_max < 1)
        return s.disable("the ranks that share a device are too many for it: their kernels must run at once");
    s.catalog = std::move(catalog);
    s.layout.rules = AlgoRules(s.layout.algo, layout, s.catalog->rows());
    StepAlgorithms steps =
        step_algorithms({.rows = s.catalog->rows(),
                         .own = [&](Collective collective) { return needs_steps(s.layout, collective); },
                         .rules = s.layout.rules,
                         .channels = int(agreed.channels),
                         .blocks_max = s.layout.blocks_max,
                         .link_mbps = s.group->header().facts.link_mbps,
                         .one_machine = s.group->header().facts.machines == 1,
                         .links_gbs = s.layout.hosts == 1 ? machines->device_gbs() : 0,
                         .deterministic = agreed.deterministic != 0},
                        layout, rank);
    s.layout.steps = std::move(steps.rows);
    s.layout.excluded = std::move(steps.excluded);
    s.layout.tile_bytes = size_t(agreed.tile_bytes);
    s.machines = std::move(machines);
    Connections connections = std::move(steps.connections);
    if (ranks <= ranks_max && s.layout.hosts == 1)
        s.buffer_registry = std::make_unique<BufferRegistry>(s.group, rank, s.kernels);
    s.domain = std::make_unique<Domain>(s.group, rank, s.kernels, std::move(connections));
    if (s.layout.hosts == 1) return;
    s.network = std::make_unique<DeviceNetwork>(s.group, *identity, rank, s.domain->memory().remote_ends());
    // The obstacle is reported to all ranks like any other.
    if (const Status listening = s.network->listen(); !listening) s.domain->object(listening);
}

void GpuEngine::prefer(uint8_t preference, const std::string& algo, int channels) {
    State& s = *state_;
    if (!s.domain) return;  // nothing is chosen here
    if (channels == int(s.group->header().agreed.channels)) channels = 0;
    s.preferred[preference] =
        layout_preferring(s.layout, algo, channels, s.machines->device_layout(0), s.catalog->rows());
}

Result<bool> GpuEngine::advance() {
    State& s = *state_;
    if (!s.domain) return true;
    auto known = s.domain->advance();
    if (!known) return known.take_status();
    if (!*known) {
        WEFT_TRY(s.check_others(s.domain->missing()));
        return false;
    }
    if (const std::string obstacle = s.domain->obstacle(); !obstacle.empty()) s.disable(obstacle);
    if (!s.network) return true;
    auto connected = s.network->connect();
    if (connected && !*connected) WEFT_TRY(s.check_others(s.network->missing()));
    return connected;
}

Status GpuEngine::State::check_others(const std::vector<int>& missing) {
    const int64_t now = now_us();
    if (group->aborted()) return group->abort_status();
    if (now < next_look_us) return ok();
    next_look_us = now + 20'000;
    for (const int other : missing)
        if (!group->alive(other))
            return fail(error::init_rank_died, "{} died while the ranks were joining their devices",
                        group->name_of(other))
                .about({.rank = other, .peer = rank});
    if (deadline_us > 0 && now > deadline_us)
        return fail(error::init_rank_missing,
                    "rank {} waited for {} to join their devices until the deadline (WEFT_INIT_TIMEOUT_MS)", rank,
                    ranks_text(missing))
            .about({.rank = missing.empty() ? -1 : missing[0], .peer = rank});
    return ok();
}

Status GpuEngine::begin(int64_t timeout_ms) {
    State& s = *state_;
    s.buffers = std::make_unique<DeviceBuffers>(*s.driver, s.context(), s.rank);
    if (!s.domain) {
        if (s.group && s.kernels && s.rank == 0 && !s.copies)
            WEFT_LOG_RANK(s.rank, info, init, "device memory is not served: {}", s.unsupported_reason);
        return ok();
    }
    s.timeout_ns = nanoseconds_of(timeout_ms);
    s.exports_buffers = s.buffer_registry && s.domain->fallback_reason().empty();
    if (s.exports_buffers) s.buffer_registry->open();
    if (s.network) WEFT_TRY(s.network->begin(s.domain->memory().remote_ends(), s.domain->reports().ended));
    WEFT_LOG_RANK(s.rank, info, init, "serves memory of device {}, {} blocks of a kernel at most{}{}", s.device(),
                  s.layout.blocks_max, s.sharing ? ", which it shares with ranks of this process" : "",
                  s.domain->fallback_text());
    if (s.group->ranks() == 1) return ok();
    // The service thread must see deaths and failures of kernels while the rank's thread waits in the driver or
    // elsewhere.
    auto service = Service::of_process();
    if (!service) return service.take_status();
    s.service = std::move(*service);
    s.service->run([&] { s.look_again(); });
    return ok();
}

}  // namespace weft::internal
