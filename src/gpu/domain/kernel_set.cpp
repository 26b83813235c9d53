#include "src/gpu/domain/kernel_set.hpp"

#include <algorithm>
#include <climits>
#include <map>
#include <mutex>
#include <vector>

#include "src/base/log.hpp"
#include "src/base/per_process.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/multicast.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/nvml/nvml.hpp"
#include "src/gpu/kernels/access_arguments.hpp"
#include "src/gpu/kernels/device_code.hpp"
#include "src/gpu/kernels/message_arguments.hpp"
#include "src/gpu/kernels/training/codec_arguments.hpp"
#include "src/gpu/kernels/training/convert_arguments.hpp"

namespace weft::internal::cuda {

namespace {

struct Loaded {
    std::mutex mutex;
    std::vector<Library> libraries;  // once per process
    std::map<int, std::weak_ptr<const KernelSet>> sets;
};

Loaded& loaded() {
    static PerProcess<Loaded> of_process;
    return of_process.get();
}

Status load_libraries(const Driver& driver, std::vector<Library>& libraries) {
    if (!libraries.empty()) return ok();
    if (device_code().empty())
        return fail(error::gpu_no_device_code,
                    "this build of Weft has no device code: no nvcc was found when Weft was built");
    std::vector<Library> all;
    for (const DeviceCode& code : device_code()) {
        auto library = Library::load(driver, code.fatbin.data());
        if (!library) return library.take_status();
        all.push_back(std::move(*library));
    }
    libraries = std::move(all);
    return ok();
}

// The ranks of a domain always share memory, in the worst case host memory.
uint32_t capabilities_of(const Driver& driver, const DeviceProperties& device) {
    uint32_t all = peer_memory;
    if (device.mapped_host_memory && device.unified_addresses) all |= host_words;
    if (device.multicast && device.vmm && device.vmm_fd && MulticastObject::has_functions(driver))
        all |= switch_multicast;
    return all;
}

FabricFacts fabric_of(const DeviceProperties& device) {
    FabricFacts facts{};
    if (!device.vmm || !device.vmm_fabric) return facts;
    const auto nvml = nvml::Nvml::get();
    const auto domain = nvml ? (*nvml)->fabric(device.bus_id) : std::nullopt;
    if (!domain) return facts;
    std::copy(domain->cluster.begin(), domain->cluster.end(), facts.cluster);
    facts.clique = domain->clique;
    facts.exports = 1;
    return facts;
}

Result<Kernel> find(const std::vector<Library>& libraries, const Context& context, const char* name) {
    Status last;
    for (const Library& library : libraries) {
        auto kernel = Kernel::load(library, context, name);
        if (kernel) return kernel;
        last = kernel.take_status();
    }
    return last;
}

}  // namespace

Result<std::shared_ptr<const KernelSet>> KernelSet::of_device(const Driver& driver, int device) {
    Loaded& all = loaded();
    std::lock_guard lock(all.mutex);
    if (auto known = all.sets[device].lock()) return known;
    auto set = std::make_shared<KernelSet>();
    // A capture in another thread would forbid the loading, and would be invalidated by it.
    const RelaxedCapture relaxed(driver);
    WEFT_TRY(set->load(driver, device));
    all.sets[device] = set;
    return std::shared_ptr<const KernelSet>(std::move(set));
}

Status KernelSet::load(const Driver& driver, int device) {
    auto context = Context::retain(driver, device);
    if (!context) return context.take_status();
    context_ = std::move(*context);
    ContextScope scope(context_);
    WEFT_TRY(scope.take_status());
    auto properties = describe_device(driver, device);
    if (!properties) return properties.take_status();
    facts_.capabilities = capabilities_of(driver, *properties);
    if (const uint32_t lacking = needs_of_all & ~facts_.capabilities)
        return fail(error::gpu_capability, "device {} has no {}, which Weft's kernels need", device,
                    name_of_lacking(lacking));
    std::vector<Library>& libraries = loaded().libraries;
    WEFT_TRY(load_libraries(driver, libraries));
    // A build for older targets alone has no such kernels.
    if ((facts_.capabilities & switch_multicast) != 0)
        if (const auto first = find(libraries, context_, entry_point(Body::multicast, multicast_word, true)); !first) {
            WEFT_LOG(info, init, "device {} does not use switch multicast: {}", device, first.status().sentence());
            facts_.capabilities &= ~uint32_t(switch_multicast);
        }
    if ((facts_.capabilities & switch_multicast) != 0 && properties->sm / 10 == 10 &&
        find(libraries, context_, entry_point(Body::multicast, weftFloat8e4m3, true)))
        facts_.capabilities |= switch_fp8;
    int resident = INT_MAX;
    const auto load_one = [&](Kernel& to, const char* name, bool counts = true) -> Status {
        auto kernel = find(libraries, context_, name);
        if (!kernel) return kernel.take_status();
        to = *kernel;
        if (!counts) return ok();
        auto blocks = kernel->blocks_per_multiprocessor(threads_max, 0);
        if (!blocks) return blocks.take_status();
        resident = std::min(resident, *blocks);
        return ok();
    };
    WEFT_TRY(load_one(messages_, message_entry_point));
    WEFT_TRY(load_one(access_, access_entry_point));
    // They wait for no other rank, so their blocks need not run at once.
    WEFT_TRY(load_one(converter_, convert_entry_point, false));
    WEFT_TRY(load_one(scaler_, scale_entry_point, false));
    WEFT_TRY(load_one(encoder_, encode_entry_point, false));
    WEFT_TRY(load_one(decoder_, decode_entry_point, false));
    for (int number = 0; number < body_count; ++number) {
        const uint32_t lacking = needs(Body(number)) & ~facts_.capabilities;
        if (lacking)
            WEFT_LOG(info, init, "the kernels {} are left out: device {} has no {}", name_of(Body(number)), device,
                     name_of_lacking(lacking));
        for (int type = 0; !lacking && type < weftNumTypes; ++type)
            for (const bool sums : {false, true}) {
                const auto body = Body(number);
                if (!has_entry_point(body, weftDataType_t(type), sums) ||
                    (needs(body, weftDataType_t(type)) & ~facts_.capabilities) != 0)
                    continue;
                const bool local = body == Body::local_reduce;
                // adder() waits for no other kernel, so it need not be resident with others.
                WEFT_TRY(load_one(kernels_[int(body)][type][sums], entry_point(body, weftDataType_t(type), sums),
                                  !local || type == weftInt32));
            }
    }
    facts_.use = DeviceFacts::usable;
    facts_.ordinal = device;
    std::copy(properties->uuid.begin(), properties->uuid.end(), facts_.uuid);
    properties->bus_id.copy(facts_.bus_id, sizeof facts_.bus_id - 1);
    facts_.resident_blocks = resident * properties->multiprocessors;
    facts_.fabric = fabric_of(*properties);
    // Drivers that do not know the attribute refuse launches that have it.
    mps_ = properties->mps;
    sync_domains_ = properties->memory_sync_domains > 1 && driver.version() >= 12000;
    return ok();
}

}  // namespace weft::internal::cuda
