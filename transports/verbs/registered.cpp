#include "transports/verbs/registered.hpp"

#include <algorithm>
#include <cstring>

#include "src/net/bytes.hpp"
#include "src/net/handshake.hpp"

namespace weft::internal::verbs {

Result<std::unique_ptr<Registered>> Registered::make(const Devices& devices, const MemoryRange& range, int access) {
    if (range.kind == RangeKind::device)
        return fail(error::internal_state, "this transport does not register device memory");
    std::unique_ptr<Registered> made(new Registered(range));
    for (const Device& device : devices.all()) {
        auto region = MemoryRegion::host(*device.domain, range.data, std::max<size_t>(range.bytes, 1), access);
        if (!region) return region.take_status();
        made->regions_.push_back(std::move(*region));
    }
    return made;
}

std::vector<std::byte> Registered::key() const {
    ByteWriter to;
    to.put(key_magic);
    to.put(net::process_mark());
    to.put(uint64_t(reinterpret_cast<uintptr_t>(range().data)));
    to.put(uint64_t(range().bytes));
    to.put(uint32_t(regions_.size()));
    for (const MemoryRegion& region : regions_) to.put(region.rkey());
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
