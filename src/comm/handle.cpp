#include "src/comm/handle.hpp"

namespace weft {

Status check_handle(const weftComm* handle) {
    if (!handle) return fail(weftInvalidArgument, "the communicator is NULL");
    // What does not even lie as ours do is not looked into.
    const bool misplaced = reinterpret_cast<uintptr_t>(handle) % alignof(weftComm) != 0;
    const uint64_t magic = misplaced ? 0 : handle->magic.load(std::memory_order_acquire);
    if (magic == weftComm::living) [[likely]] {
        if (handle->process == process_token()) [[likely]]
            return ok();
        return fail(weftInvalidUsage, "the communicator was made before fork(); a child process makes its own");
    }
    if (magic == weftComm::destroyed)
        return fail(weftInvalidArgument, "the communicator was destroyed or aborted before");
    return fail(weftInvalidArgument, "{} is not a communicator", static_cast<const void*>(handle));
}

weftComm* make_handle(std::unique_ptr<Communicator> communicator) {
    static std::atomic<weftComm*> newest{nullptr};  // owns them all, so that none counts as leaked
    auto* handle = new weftComm;                    // see handle.hpp: never deleted
    handle->older = newest.load(std::memory_order_relaxed);
    while (!newest.compare_exchange_weak(handle->older, handle, std::memory_order_release, std::memory_order_relaxed)) {
    }
    handle->process = process_token();
    handle->communicator = std::move(communicator);
    return handle;
}

}  // namespace weft
