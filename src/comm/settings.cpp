#include "src/comm/settings.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <mutex>
#include <set>

#include "src/base/log.hpp"
#include "src/base/name_list.hpp"
#include "src/base/options.hpp"
#include "src/base/per_process.hpp"
#include "src/control/agreed_texts.hpp"
#include "src/gpu/kernels/kernel_arguments.hpp"
#include "src/peer_access/limits.hpp"
#include "src/registry.hpp"
#include "src/selector/algo_rules.hpp"
#include "src/selector/tuning_file.hpp"
#include "src/selector/tuning_text.hpp"
#include "topology/detect/container.hpp"

namespace weft::internal {

namespace {

// A later field must not lie where an older caller has padding, whose bytes nobody sets.
static_assert(sizeof(weftConfig_t) == offsetof(weftConfig_t, blockPolicy) + sizeof(weftConfig_t::blockPolicy));

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
    rendezvous.proposal.gpu.blocks = environment.gpu_blocks;
    rendezvous.proposal.gpu.min_blocks = environment.gpu_min_blocks;
    rendezvous.proposal.gpu.block_policy = environment.gpu_block_policy;
    rendezvous.proposal.gpu.launch_order = environment.gpu_launch_order;
    rendezvous.proposal.gpu.graph_register = environment.gpu_graph_register;
    // 1 and 2 mean the same: NCCL_NVLS_ENABLE has both.
    rendezvous.proposal.gpu.multicast = environment.gpu_multicast == 0   ? multicast_off
                                        : environment.gpu_multicast == 3 ? multicast_always
                                                                         : multicast_if_faster;
    rendezvous.proposal.gpu.threads = environment.gpu_threads / 32 * 32;
    rendezvous.proposal.gpu.staging_bytes = environment.gpu_staging_bytes;
    rendezvous.proposal.gpu.packet_bytes = environment.gpu_packet_bytes;
    auto path = gpu_path_asked_for();
    if (!path) return path.take_status();
    rendezvous.proposal.gpu.path = *path;
    WEFT_TRY(check_transports());
    rendezvous.networks = registry::own_networks();
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
    if (config.device != WEFT_CONFIG_UNDEF_INT) {
        if (config.device < WEFT_DEVICE_NONE || config.device > INT_MAX)
            return fail(error::argument_config,
                        "config.device is {}; it is a device number, WEFT_DEVICE_NONE or undefined", config.device);
        settings.device = config.device == WEFT_DEVICE_NONE ? GpuEngine::no_device : int(config.device);
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
    AgreedOptions& proposal = settings.rendezvous.proposal;
    WEFT_TRY(check_blocks(config.minBlocks, config.maxBlocks));
    WEFT_TRY(check_block_policy(config.blockPolicy));
    if (config.blockPolicy != WEFT_CONFIG_UNDEF_INT) proposal.gpu.block_policy = config.blockPolicy;
    if (config.minBlocks != WEFT_CONFIG_UNDEF_INT) proposal.gpu.min_blocks = config.minBlocks;
    if (config.maxBlocks != WEFT_CONFIG_UNDEF_INT) proposal.gpu.blocks = config.maxBlocks;
    if (config.launchOrderImplicit != WEFT_CONFIG_UNDEF_INT) {
        if (config.launchOrderImplicit != 0 && config.launchOrderImplicit != 1)
            return fail(error::argument_config, "config.launchOrderImplicit is {}; it is 0, 1 or undefined",
                        config.launchOrderImplicit);
        proposal.gpu.launch_order = config.launchOrderImplicit;
    }
    settings.rendezvous.timeout_ms = settings.options.init_timeout_ms;
    return ok();
}

}  // namespace

std::string cpu_kernel_names() {
    return names_of(all_cpu_kernels(), [](const CpuKernels* set) { return set->isa; });
}

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
    WEFT_TRY(registry::plugin_trouble());
    std::vector<std::string_view> names;
    for (const Transport* transport : registry::transports()) names.push_back(transport->name);
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

Status check_blocks(int least, int most) {
    for (const auto& [name, blocks] : {std::pair("minBlocks", least), {"maxBlocks", most}})
        if (blocks != WEFT_CONFIG_UNDEF_INT && (blocks < 1 || blocks > cuda::blocks_max))
            return fail(error::argument_config, "config.{} is {}; it is 1 to {}, or undefined", name, blocks,
                        cuda::blocks_max);
    if (most != WEFT_CONFIG_UNDEF_INT && least > most)
        return fail(error::argument_config, "config.minBlocks is {}, more than config.maxBlocks, which is {}", least,
                    most);
    return ok();
}

Status check_block_policy(int policy) {
    if (policy == WEFT_BLOCK_POLICY_DEFAULT || policy == WEFT_BLOCK_POLICY_ZERO || policy == WEFT_CONFIG_UNDEF_INT)
        return ok();
    return fail(error::argument_config,
                "config.blockPolicy is {}; it is WEFT_BLOCK_POLICY_DEFAULT, WEFT_BLOCK_POLICY_ZERO or undefined",
                policy);
}

Result<Settings> settings_for(int ranks, const weftConfig_t* given) {
    auto settings = settings_of_environment(ranks);
    if (settings) WEFT_TRY(apply(given, *settings));
    return settings;
}

Result<Settings> settings_of_child(Communicator& parent, const weftConfig_t* given) {
    Settings settings;
    settings.options = parent.context().options;
    const Segment& group = *parent.context().segment;
    settings.rendezvous.proposal = group.header().agreed;
    settings.rendezvous.quota = topology::cpu_quota();
    settings.rendezvous.networks = registry::own_networks();
    const AgreedTexts texts = AgreedTexts::of(group);
    settings.rendezvous.tuning = [text = texts.tuning] { return Result<std::string>(text); };
    settings.rendezvous.machine = [told = texts.machine(group.one_host() ? 0 : group.header().own_host)] {
        return Result<MachineText>(told);
    };
    WEFT_TRY(apply(given, settings));
    return settings;
}

}  // namespace weft::internal
