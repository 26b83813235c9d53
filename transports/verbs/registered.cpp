#include "transports/verbs/registered.hpp"

#include <algorithm>
#include <cstring>

#include "src/net/bytes.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::verbs {

// No link uses a device that is gone, nor one without an active port, which may not reach the memory of a GPU.
static bool must_serve(const Devices& devices, size_t index, const Settings& settings, const MemoryRange& range) {
    if (range.kind != RangeKind::device) return devices.all()[index].context->port(1).status().ok();
    const auto ports = devices.ports(settings);
    return ports && std::any_of(ports->begin(), ports->end(), [&](const Port& port) { return port.device == index; });
}

Result<std::unique_ptr<Registered>> Registered::make(const Devices& devices, const MemoryRange& range, int access) {
    std::unique_ptr<Registered> made(new Registered(range));
    made->regions_.resize(devices.all().size());
    const Settings settings = verbs::settings();
    if (settings.relaxed_ordering) access |= access::relaxed_ordering;  // only completions tell of data
    Status refused = fail(error::verbs_device, "this process has no RDMA device");
    bool any = false;
    const size_t bytes = std::max<size_t>(range.bytes, 1);
    for (size_t index = 0; index < devices.all().size(); ++index) {
        if (!devices.serves_links(index, settings)) continue;
        const Device& device = devices.all()[index];
        auto region = range.kind == RangeKind::device && range.dma_buf >= 0
                          ? MemoryRegion::dma_buf(*device.domain, {range.dma_buf, range.dma_buf_offset}, bytes,
                                                  uintptr_t(range.data), access)
                          : MemoryRegion::host(*device.domain, range.data, bytes, access);
        if (!region && must_serve(devices, index, settings, range)) return region.take_status();
        if (!region) refused = region.take_status();
        any = any || region;
        if (region) made->regions_[index].emplace(std::move(*region));
    }
    if (!any) return refused;
    return made;
}

std::vector<std::byte> Registered::key() const {
    ByteWriter to;
    to.put(key_magic);
    to.put(net::process_mark());
    to.put(uint64_t(reinterpret_cast<uintptr_t>(range().data)));
    to.put(uint64_t(range().bytes));
    to.put(uint32_t(regions_.size()));
    for (const auto& region : regions_) to.put(region ? region->rkey() : uint32_t(0));
    return to.bytes();
}

Result<std::unique_ptr<SlotMemory>> SlotMemory::make(const Devices& devices, size_t bytes, int access) {
    constexpr size_t page = 4'096;
    const size_t whole = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
    auto made = std::make_unique<SlotMemory>();
    made->memory_.reset(static_cast<std::byte*>(aligned_alloc(page, whole)));
    if (!made->memory_) return fail(error::memory_exhausted, "there is no memory for slots of {} bytes", bytes);
    memset(made->memory_.get(), 0, whole);
    auto registered =
        Registered::make(devices, {.data = made->memory_.get(), .bytes = whole, .kind = RangeKind::slots}, access);
    if (!registered) return registered.take_status();
    made->registered_ = std::move(*registered);
    return made;
}

}  // namespace weft::internal::verbs
