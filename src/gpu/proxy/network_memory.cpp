#include "src/gpu/proxy/network_memory.hpp"

#include <utility>

#include "src/base/options.hpp"
#include "src/drivers/cuda/device.hpp"
#include "src/drivers/cuda/dma_buf.hpp"
#include "src/drivers/cuda/stream.hpp"
#include "src/drivers/verbs/settings.hpp"
#include "src/gpu/domain/memory_pool.hpp"
#include "topology/gpu_nics.hpp"
#include "topology/host_graph.hpp"

namespace weft::internal {

using cuda::Context;
using cuda::DeviceProperties;
using cuda::MemoryPool;
using cuda::NetworkSlots;

namespace {

// Larger allocations begin at such a boundary, so a dma-buf has whole pages.
constexpr size_t device_page = size_t(2) << 20;
// Before it, devices on PCIe read a GPU's memory slowly.
constexpr int sm_with_fast_reads = 80;

// How a NIC may use the device's memory. An empty reason: it may.
struct NicAccess {
    bool pcie = false, flush = false;
    std::string why_not{}, why_no_reads{};
};

NicAccess nic_access(const DeviceProperties& device, const NetworkMemoryWanted& wanted) {
    if (wanted.transport == nullptr) return {.why_not = "ranks of other hosts are reached over several transports"};
    if (!wanted.transport->can(Capability::device) || !wanted.transport->can(Capability::given_slots))
        return {.why_not = fmt::format("{} moves host memory only", wanted.transport->name)};
    if (device.integrated) return {.why_not = "the GPU shares the processor's memory"};
    NicAccess access;
    const auto settings = verbs::read_ib_settings(options());
    const verbs::GdrLevel level = settings ? settings->gdr_level : verbs::IbSettings().gdr_level;
    const auto nics = wanted.transport->nics(device.bus_id, wanted.rank);
    const topology::GpuNics known =
        nics.empty() ? topology::GpuNics{} : topology::nics_of_gpu(topology::host_graph(true), device.bus_id, nics);
    if (level == verbs::GdrLevel::loc)
        access.why_not = fmt::format("{} is LOC", options().variable(OptionIndex::gdr_level));
    else if (known.path_class != topology::PathClass::none && known.path_class > topology::farthest(level))
        access.why_not = fmt::format("the path from the GPU to {} is {}, farther than {} allows", nics[0],
                                     name_of(known.path_class), options().variable(OptionIndex::gdr_level));
    access.pcie = known.path_class <= topology::PathClass::pxb;
    access.flush = options().gdr_flush > 0 ||
                   (options().gdr_flush < 0 &&
                    (device.rdma_writes_ordering < CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER || known.beside_c2c()));
    if (options().gdr_read == 0)
        access.why_no_reads = fmt::format("{} is 0", options().variable(OptionIndex::gdr_read));
    else if (options().gdr_read < 0 && device.sm < sm_with_fast_reads)
        access.why_no_reads = "NICs read the memory of such an old GPU slowly";
    return access;
}

Result<std::shared_ptr<const RegisteredMemory>> registered(const Transport& transport, const MemoryRange& range) {
    auto memory = transport.register_memory(range);
    if (!memory) return memory.take_status();
    return std::shared_ptr<const RegisteredMemory>(std::move(*memory));
}

// By a dma-buf, or by its address, which needs the kernel module nvidia-peermem.
Result<std::shared_ptr<const RegisteredMemory>> registered_device(const Context& context, const Transport& transport,
                                                                  const NicAccess& access,
                                                                  const cuda::DeviceMemory& memory) {
    MemoryRange range{.data = static_cast<std::byte*>(memory.data()),
                      .bytes = memory.bytes(),
                      .kind = RangeKind::device,
                      .device = context.device(),
                      .needs_flush = access.flush};
    Status first;
    if (auto buffer = cuda::export_dma_buf(context, memory.address(), memory.bytes(), access.pcie)) {
        range.dma_buf = buffer->fd.number();
        range.dma_buf_offset = buffer->offset;
        auto made = registered(transport, range);
        if (made) return made;
        first = made.take_status();
    } else {
        first = buffer.take_status();
    }
    range.dma_buf = -1;
    auto made = registered(transport, range);
    if (made) return made;
    return fail(made.status(), "{}; and by its address: {} (is the kernel module nvidia-peermem loaded?)",
                first.sentence(), made.status().sentence());
}

// Failures are no obstacle: pinned memory takes the place.
Result<NetworkSlots> on_device(const Context& context, const NetworkMemoryWanted& wanted, const NicAccess& access,
                               size_t bytes) {
    const size_t whole = (bytes + device_page - 1) / device_page * device_page;
    if (auto unused = MemoryPool::of_process().take_slots(context, whole, true, wanted.transport))
        return std::move(*unused);
    NetworkSlots slots;
    auto memory = cuda::DeviceMemory::allocate(context, whole);
    if (!memory) return memory.take_status();
    slots.device = std::move(*memory);
    auto made = registered_device(context, *wanted.transport, access, slots.device);
    if (!made) return made.take_status();
    slots.registered = std::move(*made);
    slots.transport = wanted.transport;
    return slots;
}

// If the transport takes slots of its caller, it sends from them and receives into them without a copy.
Result<NetworkSlots> in_host_memory(const Context& context, const NetworkMemoryWanted& wanted, size_t bytes) {
    const bool takes_slots = wanted.transport != nullptr && wanted.transport->can(Capability::given_slots) &&
                             wanted.transport->can(Capability::registers);
    const Transport* const transport = takes_slots ? wanted.transport : nullptr;
    if (auto unused = MemoryPool::of_process().take_slots(context, bytes, false, transport)) return std::move(*unused);
    NetworkSlots slots;
    auto memory = cuda::PinnedMemory::allocate(context, bytes);
    if (!memory) return memory.take_status();
    slots.pinned = std::move(*memory);
    if (transport == nullptr) return slots;
    auto made = registered(*transport, {.data = static_cast<std::byte*>(slots.pinned.data()),
                                        .bytes = slots.pinned.bytes(),
                                        .kind = RangeKind::pinned});
    if (!made) return slots;  // copied by the proxy
    slots.registered = std::move(*made);
    slots.transport = transport;
    return slots;
}

}  // namespace

Result<NetworkMemory> make_network_memory(const Context& context, const NetworkMemoryWanted& wanted) {
    const cuda::RelaxedCapture relaxed(context.driver());
    auto device = cuda::describe_device(context.driver(), context.device());
    if (!device) return device.take_status();
    NicAccess access = nic_access(*device, wanted);
    NetworkMemory made;
    const auto make = [&](NetworkSlots& slots, size_t bytes, std::string& why_not) -> Status {
        if (bytes == 0) return ok();
        if (why_not.empty()) {
            auto direct = on_device(context, wanted, access, bytes);
            if (direct) return slots = std::move(*direct), ok();
            why_not = direct.status().sentence();
        }
        auto staged = in_host_memory(context, wanted, bytes);
        if (!staged) return staged.take_status();
        slots = std::move(*staged);
        return ok();
    };
    WEFT_TRY(make(made.received, wanted.received_bytes, access.why_not));
    if (access.why_no_reads.empty()) access.why_no_reads = access.why_not;
    WEFT_TRY(make(made.sent, wanted.sent_bytes, access.why_no_reads));
    const char* const flush = access.flush ? ", with a flush" : "";
    if (!access.why_not.empty())
        made.text = fmt::format("stages messages to other hosts in pinned host memory: {}", access.why_not);
    else if (!access.why_no_reads.empty())
        made.text = fmt::format("receives device memory directly over {}{}, and stages what it sends: {}",
                                wanted.transport->name, flush, access.why_no_reads);
    else
        made.text = fmt::format("sends and receives device memory directly over {}{}", wanted.transport->name, flush);
    return made;
}

}  // namespace weft::internal
