#include "src/comm/handle.hpp"

#include "src/base/process_token.hpp"
#include "src/base/tombstones.hpp"

namespace weft::internal {

bool is_being_made(const weftComm* handle) {
    const uint64_t magic = magic_of(handle);
    return (magic == weftComm::making || magic == weftComm::unmade) && handle->process == process_token();
}

Status check_handle(const weftComm* handle) {
    if (!handle) return fail(error::argument_communicator, "the communicator is NULL");
    const uint64_t magic = magic_of(handle);
    if (magic == weftComm::living) [[likely]] {
        if (handle->process == process_token()) [[likely]]
            return ok();
        return fail(error::usage_forked, "the communicator was made before fork(); a child process makes its own");
    }
    if (magic == weftComm::making)
        return fail(error::usage_not_ready,
                    "the communicator is still being made: call weftCommGetAsyncError until the result is not "
                    "weftInProgress");
    if (magic == weftComm::unmade)
        return fail(error::usage_not_made,
                    "the communicator could not be made (weftCommGetAsyncError and weftGetLastError say why): destroy "
                    "it");
    if (magic == weftComm::destroyed)
        return fail(error::argument_communicator, "the communicator was destroyed or aborted before");
    return fail(error::argument_communicator, "{} is not a communicator", static_cast<const void*>(handle));
}

weftComm* make_handle() {
    auto handle = std::make_unique<weftComm>();
    handle->process = process_token();
    return keep_tombstone(std::move(handle));
}

}  // namespace weft::internal

void weftComm::deliver(std::unique_ptr<weft::internal::Communicator> made,
                       std::shared_ptr<weft::internal::HostStream> stream) {
    std::lock_guard lock(mutex);
    if (stream) keep_stream(std::move(stream));
    communicator = std::move(made);
    magic.store(living, std::memory_order_release);
}

void weftComm::give_up() noexcept {
    std::lock_guard lock(mutex);
    if (magic.load(std::memory_order_relaxed) != making) return;
    try {
        error = weft::internal::Failure{
            weft::internal::error::memory_exhausted,
            "the communicator was never made: the group or call that was to make it was given up"};
    } catch (...) {  // out of memory: the error has no text
    }
    unmade_by = weftSystemError;
    magic.store(unmade, std::memory_order_release);
}

void weftComm::deliver(const weft::internal::Status& failure) {
    std::lock_guard lock(mutex);
    error = failure.failure();
    unmade_by = failure.code();
    magic.store(unmade, std::memory_order_release);
}
