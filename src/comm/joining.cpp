#include "src/comm/joining.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>
#include <set>

#include "src/base/build_facts.hpp"
#include "src/base/cpu.hpp"
#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/planning/machines.hpp"
#include "src/registry.hpp"
#include "src/selector/algo_rules.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "topology/detect/container.hpp"

namespace weft::internal {

namespace {

Status check_config(const weftConfig_t& config) {
    if (config.magic != WEFT_CONFIG_MAGIC || config.size < offsetof(weftConfig_t, timeoutMs))
        return fail(error::argument_config,
                    "the config was not initialised: begin with weftConfig_t config = WEFT_CONFIG_INITIALIZER");
    return ok();
}

// Limits milliseconds so that they fit in microseconds.
int64_t countable_ms(int64_t ms) { return std::min(ms, INT64_MAX / 1000); }

Status set_algo(const char* option, const std::string& algo, const Catalog& catalog, RendezvousOptions& rendezvous) {
    WEFT_TRY(catalog.check(option, algo));
    if (algo.size() >= sizeof rendezvous.proposal.algo)
        return fail(error::option_value, "the list of algorithms has {} characters, but Weft reads at most {}",
                    algo.size(), sizeof rendezvous.proposal.algo - 1);
    memcpy(rendezvous.proposal.algo, algo.c_str(), algo.size() + 1);
    return ok();
}

template <class Items, class NameOf>
std::string names_of(const Items& items, NameOf&& name_of) {
    std::string names;
    for (const auto& item : items) names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(item));
    return names;
}

void warn_of_unknown_once(const Tuning& tuning, const std::string& file, const Catalog& catalog) {
    static PerProcess<std::once_flag> logged;
    std::call_once(logged.get(), [&] {
        const std::vector<std::string_view> names = catalog.names();
        std::set<std::string> unknown;
        for (const Tuning::Curve& curve : tuning.curves)
            if (std::find(names.begin(), names.end(), curve.algorithm) == names.end()) unknown.insert(curve.algorithm);
        if (!unknown.empty())
            WEFT_LOG(warn, algo, "WEFT_TUNE_FILE: {}: there is no algorithm {}: its times are ignored", file,
                     names_of(unknown, [](const std::string& name) { return name; }));
    });
}

// The tuning text that rank 0 sends to all ranks.
Result<std::string> tuning_text_of(const std::string& file, const Catalog& catalog) {
    auto tuning = tuning_of_file(file);
    if (!tuning) return tuning.take_status();
    if (*tuning) warn_of_unknown_once(**tuning, file, catalog);
    std::string text = *tuning ? tuning_text(**tuning) : std::string();
    if (text.size() > AgreedTexts::tuning_bytes_most)
        return fail(
            error::option_tuning_file,
            "WEFT_TUNE_FILE has {} bytes of measured times, but ranks exchange at most {}: measure fewer sizes, or "
            "fewer numbers of ranks",
            text.size(), AgreedTexts::tuning_bytes_most);
    return text;
}

Result<Settings> settings_of_environment(int ranks) {
    if (!options_status()) return options_status().copy();
    const Options& environment = options();
    Settings settings;
    CommunicatorOptions& own = settings.options;
    own.timeout_ms = countable_ms(environment.timeout_ms);
    own.init_timeout_ms = countable_ms(environment.init_timeout_ms);
    own.warn_ms = countable_ms(environment.warn_ms);
    own.sleep_us = environment.sleep_us;
    own.streaming_bytes = environment.streaming_bytes;
    auto cpu_kernels = requested_cpu_kernels();
    if (!cpu_kernels) return cpu_kernels.take_status();
    own.cpu_kernels = *cpu_kernels;
    RendezvousOptions& rendezvous = settings.rendezvous;
    auto catalog = catalog_for(ranks);
    if (!catalog) return catalog.take_status();
    own.catalog = std::move(*catalog);
    rendezvous.tuning = [file = environment.tune_file, catalog = own.catalog] {
        return tuning_text_of(file, *catalog);
    };
    rendezvous.proposal.user_algorithms = own.catalog->digest();
    rendezvous.proposal.algo_files_any_order = own.catalog->any_order();
    WEFT_TRY(set_algo("WEFT_ALGO", environment.algo, *own.catalog, rendezvous));
    rendezvous.proposal.tile_bytes = environment.tile_bytes;
    rendezvous.proposal.channels = environment.channels;
    rendezvous.proposal.direct = environment.direct;
    rendezvous.proposal.cma = environment.cross_memory != 0;
    rendezvous.proposal.cma_messages = cma_messages_wanted(environment.cross_memory);
    rendezvous.proposal.join_bytes = environment.join_bytes;
    rendezvous.proposal.deterministic = environment.deterministic;
    rendezvous.proposal.gpu_blocks = environment.gpu_blocks;
    rendezvous.proposal.gpu_threads = environment.gpu_threads / 32 * 32;
    auto path = gpu_path_asked_for();
    if (!path) return path.take_status();
    rendezvous.proposal.gpu_path = *path;
    WEFT_TRY(check_transports());
    return settings;
}

// Overrides settings by the caller's config, if any.
// An older caller's config is shorter, so it is copied over the defaults of this version.
Status apply(const weftConfig_t* given, Settings& settings) {
    weftConfig_t config = WEFT_CONFIG_INITIALIZER;
    if (given) {
        WEFT_TRY(check_config(*given));
        memcpy(&config, given, std::min(given->size, sizeof config));
    }
    if (config.blocking != 0 && config.blocking != 1 && config.blocking != WEFT_CONFIG_UNDEF_INT)
        return fail(error::argument_config, "config.blocking is {}; it is 0, 1 or undefined", config.blocking);
    if (config.blocking != WEFT_CONFIG_UNDEF_INT) settings.options.blocking = config.blocking != 0;
    if (config.commName) settings.options.name = config.commName;
    if (config.timeoutMs >= 0) settings.options.timeout_ms = countable_ms(config.timeoutMs);
    if (config.initTimeoutMs >= 0) settings.options.init_timeout_ms = countable_ms(config.initTimeoutMs);
    if (config.algo) WEFT_TRY(set_algo("config.algo", config.algo, *settings.options.catalog, settings.rendezvous));
    if (config.deterministic != WEFT_CONFIG_UNDEF_INT) {
        if (config.deterministic != 0 && config.deterministic != 1)
            return fail(error::argument_config, "config.deterministic is {}; it is 0, 1 or undefined",
                        config.deterministic);
        settings.rendezvous.proposal.deterministic = config.deterministic;
    }
    settings.rendezvous.timeout_ms = settings.options.init_timeout_ms;
    return ok();
}

std::string cpu_kernel_names() {
    return names_of(all_cpu_kernels(), [](const CpuKernels* set) { return set->isa; });
}

// Logs the version before anything can fail.
void log_version_once() {
    static PerProcess<std::once_flag> logged;
    std::call_once(logged.get(), [] {
        const std::string sanitizers = names_of(library_sanitizers(), [](const std::string& name) { return name; });
        WEFT_LOG(version, init, "Weft {}, compiled by {}{}{}; transports {}; CPU kernels {}; {}", library_version(),
                 library_compiler(), sanitizers.empty() ? "" : " with sanitizers ", sanitizers,
                 names_of(registry::transports(), [](const Transport& transport) { return transport.name; }),
                 cpu_kernel_names(),
                 cuda::device_code().empty() ? std::string("without device code")
                                             : fmt::format("device code for sm {}", cuda::device_code_targets()));
    });
}

}  // namespace

Result<std::shared_ptr<const Catalog>> catalog_for(int ranks) {
    const auto any_order = any_order_asked_for();
    if (!any_order) return any_order.status().copy();
    return Catalog::shared(options().algo_files, ranks, registry::algorithms(), *any_order);
}

Result<bool> any_order_asked_for() {
    const std::string& order = options().algo_files_order;
    if (order.empty() || order == "any") return !order.empty();
    return fail(error::option_value, "WEFT_ALGO_FILES_ORDER is `{}`; it is any, or empty", order);
}

Status check_transports() {
    std::vector<std::string_view> names;
    for (const Transport& transport : registry::transports()) names.push_back(transport.name);
    return check_names("WEFT_TRANSPORTS", options().transports, names);
}

Result<const CpuKernels*> requested_cpu_kernels() {
    const std::string& isa = options().isa;
    if (const CpuKernels* found = isa.empty() ? &cpu_kernels() : find_cpu_kernels(isa)) return found;
    return fail(error::option_value, "WEFT_ISA is `{}`; this machine has {}", isa, cpu_kernel_names());
}

Result<GpuPath> gpu_path_asked_for() {
    const std::string& name = options().gpu_path;
    const auto* const found = std::find(std::begin(gpu_path_names), std::end(gpu_path_names), name);
    if (found != std::end(gpu_path_names)) return GpuPath(found - std::begin(gpu_path_names));
    return fail(error::option_value, "WEFT_GPU_PATH is `{}`; it is descriptors, host, copies, or empty", name);
}

bool ranks_share_memory() { return NameList(options().transports).admits("shm"); }

Result<uint64_t> host_of(int rank) {
    auto host = host_identity();
    if (!host) return host;
    // Without shared memory, each rank is a host of its own.
    return ranks_share_memory() ? *host : *host ^ (uint64_t(rank) + 1) * 0x9e3779b97f4a7c15u;
}

Result<Settings> settings_of_child(const Communicator& parent, const weftConfig_t* given) {
    Settings settings;
    settings.options = parent.options();
    const Segment& group = *parent.segment();
    settings.rendezvous.proposal = group.header().agreed;
    settings.rendezvous.quota = topology::cpu_quota();
    const AgreedTexts texts = AgreedTexts::of(group);
    settings.rendezvous.tuning = [text = texts.tuning] { return Result<std::string>(text); };
    settings.rendezvous.machine = [told = texts.machine(group.one_host() ? 0 : group.header().own_host)] {
        return Result<MachineText>(told);
    };
    WEFT_TRY(apply(given, settings));
    return settings;
}

Result<Joining> prepare_joining(weftComm** comm, int nranks, const UniqueId& id, int rank, const weftConfig_t* given,
                                int device) {
    if (!comm) return fail(error::argument_null, "comm is NULL: pass the address of a weftComm_t");
    *comm = nullptr;  // the caller may pass it to weftCommDestroy after an error
    if (nranks < 1 || nranks > max_ranks)
        return fail(error::argument_rank, "nranks is {}; a communicator has 1 to {} ranks", nranks, max_ranks);
    if (rank < 0 || rank >= nranks)
        return fail(error::argument_rank, "rank is {}; with nranks {} it is 0 to {}", rank, nranks, nranks - 1);
    log_version_once();
    auto settings = settings_of_environment(nranks);
    if (!settings) return settings.take_status();
    WEFT_TRY(apply(given, *settings));
    if (nranks > 1 && !ranks_share_memory() && !id.has_root())
        return fail(error::init_unreachable,
                    "WEFT_TRANSPORTS forbids shared memory, but the process that made the unique id listens on no "
                    "network, so the ranks cannot meet; its log at INFO says why");
    RendezvousOptions& rendezvous = settings->rendezvous;
    auto host = host_of(rank);
    if (!host) return host.take_status();
    rendezvous.host = *host;
    rendezvous.quota = topology::cpu_quota();
    // Loads kernels before the ranks meet: later, loading could wait for running kernels of other ranks.
    auto found = GpuEngine::find(device);
    if (!found) return found.take_status();
    Joining joining;
    joining.rank = rank;
    std::shared_ptr<HostStream> own_stream;
    if (settings->options.blocking) {
        joining.result = comm;
    } else {
        auto stream = HostStream::make(0);
        if (!stream) return stream.take_status();
        own_stream = std::move(*stream);
    }
    joining.device = std::move(*found);
    if (joining.device) rendezvous.device = joining.device->facts();
    // With two ranks there is no order to find, so their machines are not described.
    if (nranks > 2 || (nranks == 2 && joining.device)) {
        rendezvous.machine = [gpus = joining.device != nullptr] { return describe_this_machine(gpus); };
        // Described now, so that other ranks do not wait for it. A failure repeats in the rendezvous, which reports it.
        if (rank == 0) (void)rendezvous.machine();
    }
    joining.timeout_ms = rendezvous.timeout_ms;
    joining.options = std::move(settings->options);
    joining.rendezvous = std::make_unique<IdRendezvous>(id, nranks, rank, rendezvous);
    if (own_stream) {
        joining.hand_out(comm);
        joining.handle->keep_stream(std::move(own_stream));
    }
    return joining;
}

namespace {

Status same_algorithms(const Joining& joining) {
    const Catalog& catalog = *joining.options.catalog;
    const AgreedOptions& agreed = joining.rendezvous->segment()->header().agreed;
    if (agreed.deterministic && agreed.algo_files_any_order)
        return fail(error::option_conflict,
                    "WEFT_ALGO_FILES_ORDER=any lets results differ between ranks, and WEFT_DETERMINISTIC=1, or "
                    "config.deterministic, forbids that: unset one of them");
    if (catalog.any_order() != (agreed.algo_files_any_order != 0))
        return fail(error::option_differs,
                    "WEFT_ALGO_FILES_ORDER of rank {} is {}, rank 0's is {}: give all ranks the same value",
                    joining.rank, catalog.any_order() ? "any" : "empty", catalog.any_order() ? "empty" : "any");
    if (catalog.digest() == agreed.user_algorithms) return ok();
    const std::string faults = catalog.faults();
    return fail(
        error::option_differs,
        "WEFT_ALGO_FILES of rank {} holds other algorithms than rank 0's: give all ranks the same files, in the "
        "same order{}{}",
        joining.rank, faults.empty() ? "" : "; on this rank ", faults);
}

Status find_machines(Joining& joining) {
    auto machines = Machines::of(*joining.rendezvous->segment());
    if (!machines) return machines.take_status();
    joining.options.machines = std::move(*machines);
    return ok();
}

// From rank 0's tuning text.
Status find_tuning(Joining& joining, const std::string& text) {
    joining.options.tuning = nullptr;
    if (text.empty()) return ok();
    auto tuning = shared_by_process<const Tuning>(text, [&]() -> Result<std::shared_ptr<const Tuning>> {
        auto read = read_tuning(text);
        if (!read) return read.take_status();
        return std::make_shared<const Tuning>(std::move(*read));
    });
    if (!tuning) return tuning.take_status();
    joining.options.tuning = std::move(*tuning);
    return ok();
}

// One step: true when the ranks and their devices have met.
Result<bool> meet(Joining& joining) {
    if (!joining.met) {
        auto met = joining.rendezvous->advance();
        if (!met || !*met) return met;
        joining.met = true;
        AgreedTexts texts = AgreedTexts::of(*joining.rendezvous->segment());
        Status ready = texts.refusal ? Status(std::move(*texts.refusal)) : same_algorithms(joining);
        if (ready && !joining.same_ranks) ready = find_machines(joining);
        if (ready && !joining.same_ranks) ready = find_tuning(joining, texts.tuning);
        if (!ready) {
            joining.rendezvous->segment()->raise(ready, joining.rank);
            return ready;
        }
        const auto membership = joining.rendezvous->membership();
        if (joining.device)
            joining.device->meet(joining.rendezvous->segment(), membership ? &membership->identity() : nullptr,
                                 joining.rank, joining.timeout_ms, joining.options.catalog, joining.options.machines);
    }
    if (!joining.device) return true;
    auto known = joining.device->advance();
    // The other ranks must not wait for a rank that has given up.
    if (!known) joining.rendezvous->segment()->raise(known.status(), joining.rank);
    return known;
}

Result<bool> make_when_met(Joining& joining) {
    auto met = meet(joining);
    if (!met || !*met) return met;
    // Only a child needs a stream here; other communicators got theirs before.
    std::shared_ptr<HostStream> stream;
    if (!joining.options.blocking && (!joining.handle || !joining.handle->own_stream)) {
        auto made = HostStream::make(0);
        if (!made) return made.take_status();
        stream = std::move(*made);
    }
    auto communicator = Communicator::make(joining.rendezvous->segment(), joining.rendezvous->membership(),
                                           std::move(joining.device), joining.rank, std::move(joining.options));
    if (!communicator) return communicator.take_status();
    weftComm* handle = joining.handle ? joining.handle.get() : make_handle();
    handle->deliver(std::move(*communicator), std::move(stream));
    if (joining.result) *joining.result = handle;
    return true;
}

}  // namespace

Result<bool> advance(Joining& joining) {
    Result<bool> made = false;
    try {
        if (joining.handle && joining.handle->cancelled.load(std::memory_order_acquire)) {
            made = fail(error::abort_local, "the communicator was aborted here, by weftCommAbort, while it was made");
            if (const auto group = joining.rendezvous->segment())
                group->raise(error::abort_remote, joining.rank,
                             fmt::format("rank {} aborted the communicator (weftCommAbort) "
                                         "while it was made",
                                         joining.rank),
                             {.rank = joining.rank});
        } else {
            made = make_when_met(joining);
        }
        if (made && !*made) return made;
    } catch (const std::bad_alloc&) {
        // Otherwise the other ranks would wait for this rank until their deadline.
        if (const auto group = joining.rendezvous->segment())
            group->raise(error::memory_exhausted, joining.rank, "a rank ran out of memory while it joined",
                         {.rank = joining.rank});
        made = Status(error::memory_exhausted, "out of memory");
    }
    if (!made && joining.handle) joining.handle->deliver(made.status());
    joining.device.reset();
    joining.rendezvous.reset();
    return made;
}

Status join(std::vector<Joining> joinings, CallStatuses* statuses) {
    Status first;
    for (size_t left = joinings.size(); left > 0;) {
        for (Joining& joining : joinings) {
            if (!joining.rendezvous) continue;
            auto made = advance(joining);
            if (made && !*made) continue;
            Status failure = made.take_status();
            if (statuses && !failure)
                failure = statuses->fail(joining.number, joining.handle.get(), failure);
            else if (statuses)
                statuses->done(joining.number);
            if (!failure && first) first = std::move(failure);
            --left;
        }
        if (left == joinings.size() && left == 1 && !joinings[0].met)
            joinings[0].rendezvous->wait();
        else if (left > 0)
            usleep(200);
    }
    return first;
}

}  // namespace weft::internal
