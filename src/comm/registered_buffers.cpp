#include "src/comm/registered_buffers.hpp"

#include <algorithm>

#include "src/base/log.hpp"
#include "src/segment/arena.hpp"

namespace weft::internal {

void* RegisteredBuffers::add(void* address, size_t bytes) {
    const auto entry = context_.device ? context_.device->buffers().add(address, bytes) : std::nullopt;
    const RegisteredMemory* const registered =
        entry ? nullptr : context_.planner.user_memory().add(static_cast<std::byte*>(address), bytes);
    if (!entry && !registered && Arena::place_of(address, bytes) == 0)
        WEFT_LOG_RANK(context_.rank, info, mem,
                      "{} bytes at {} are private memory that peers cannot map; use weftHostAlloc", bytes, address);
    return &*buffers_.insert(buffers_.end(), {entry.value_or(GpuBuffers::no_entry), registered});
}

Status RegisteredBuffers::remove(const void* handle, bool calls) {
    const auto place =
        std::find_if(buffers_.begin(), buffers_.end(), [&](const Buffer& buffer) { return &buffer == handle; });
    if (place == buffers_.end())
        return fail(error::argument_handle,
                    "weftCommDeregister: {} is no handle of weftCommRegister on this communicator", handle);
    if (place->entry != GpuBuffers::no_entry) WEFT_TRY(context_.device->buffers().remove(place->entry));
    using Users = UserMemory::Users;
    UserMemory& memory = context_.planner.user_memory();
    const bool dead = context_.segment->aborted();
    if (place->registered) memory.remove(place->registered, dead ? Users::senders : calls ? Users::calls : Users::none);
    if (!dead && !calls) memory.forget_ended();
    buffers_.erase(place);
    return ok();
}

}  // namespace weft::internal
