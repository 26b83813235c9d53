#include "src/comm/registered_buffers.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

void* RegisteredBuffers::add(void* address, size_t bytes) {
    const auto entry = context_.device ? context_.device->buffers().add(address, bytes) : std::nullopt;
    if (!entry && Arena::place_of(address, bytes) == 0)
        WEFT_LOG_RANK(context_.rank, info, mem,
                      "{} bytes at {} are private memory that peers cannot map; use weftHostAlloc", bytes, address);
    return &*entries_.insert(entries_.end(), entry.value_or(GpuBuffers::no_entry));
}

Status RegisteredBuffers::remove(const void* handle) {
    const auto place =
        std::find_if(entries_.begin(), entries_.end(), [&](const int& entry) { return &entry == handle; });
    if (place == entries_.end())
        return fail(error::argument_handle,
                    "weftCommDeregister: {} is no handle of weftCommRegister on this communicator", handle);
    if (*place != GpuBuffers::no_entry) WEFT_TRY(context_.device->buffers().remove(*place));
    entries_.erase(place);
    return ok();
}

}  // namespace weft::internal
