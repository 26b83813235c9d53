#include "transports/verbs/registered.hpp"

#include <algorithm>
#include <cstring>

namespace weft::internal::verbs {

Result<std::unique_ptr<Registered>> Registered::make(const Devices& devices, const MemoryRange& range, int access) {
    if (range.kind == RangeKind::device)
        return fail(error::internal_state, "this transport does not register device memory");
    std::unique_ptr<Registered> made(new Registered(range));
    Status refused = fail(error::verbs_device, "this process has no RDMA device");
    bool any = false;
    for (const Device& device : devices.all()) {
        auto region = MemoryRegion::host(*device.domain, range.data, std::max<size_t>(range.bytes, 1), access);
        // No link uses a device that is gone.
        if (!region && device.context->port(1)) return region.take_status();
        if (!region) refused = region.take_status();
        any = any || region;
        made->regions_.push_back(region ? std::optional(std::move(*region)) : std::nullopt);
    }
    if (!any) return refused;
    return made;
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
