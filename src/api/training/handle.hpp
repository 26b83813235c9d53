// handle.hpp: the handles of train.h: their checks, and calls of one thread at a time.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>

#include "src/api/guard.hpp"
#include "src/base/process_token.hpp"
#include "src/base/tombstones.hpp"
#include "src/train/hooks/bucket_hooks.hpp"
#include "weft/weft.h"

namespace weft::internal {

// Never freed: a destroyed one stays a tombstone, so that its use is an error message. Handle names itself for errors,
// and has the magic numbers `living` and `destroyed`.
template <class Handle, class Kept>
struct TrainingHandle {
    using Object = Kept;

    std::atomic<uint64_t> magic{Handle::living};
    uint64_t process = process_token();
    std::atomic<bool> inside{false};
    std::mutex mutex;  // guards `object`, for threads that are not inside
    std::shared_ptr<Object> object;
};

// Calls of these functions would become part of the group.
inline Status check_no_group(const char* function) {
    if (!Group::current_open()) return ok();
    return fail(error::train_iteration, "{}: a group is open on this thread: call weftGroupEnd first", function);
}

template <class Handle>
Status check_training(const Handle* handle) {
    if (!handle) return fail(error::argument_handle, "{} is NULL", Handle::name);
    const uint64_t magic = magic_of(handle);
    if (magic == Handle::destroyed) return fail(error::argument_handle, "{} was destroyed before", Handle::name);
    if (magic != Handle::living)
        return fail(error::argument_handle, "{} was not made by {}", static_cast<const void*>(handle), Handle::maker);
    if (handle->process != process_token())
        return fail(error::usage_forked, "{} was made before fork(); a child process makes its own", Handle::name);
    return ok();
}

template <class Handle>
Handle* keep_training(std::shared_ptr<typename Handle::Object> object) {
    auto handle = std::make_unique<Handle>();
    handle->object = std::move(object);
    return keep_tombstone(std::move(handle));
}

// A hook must not wait for its own thread. It must not count as a call either: that would refuse the thread's own one.
template <class Handle>
Status check_not_in_hook(const char* function, Handle* handle) {
    std::lock_guard lock(handle->mutex);
    if (!handle->object || !handle->object->in_hook()) return ok();
    return fail(error::usage_in_function, "{}: the hook of the object called it: keep calls on {} out of its hook",
                function, Handle::name);
}

// A call of one thread at a time.
template <class Handle, class Body>
Status enter_training(const char* function, Handle* handle, Body&& body) {
    WEFT_TRY(check_training(handle));
    WEFT_TRY(check_no_group(function));
    if constexpr (requires { handle->object->in_hook(); })
        if (train::in_any_hook()) [[unlikely]]
            WEFT_TRY(check_not_in_hook(function, handle));
    if (handle->inside.exchange(true, std::memory_order_acquire)) [[unlikely]]
        return fail(error::usage_threads, "{}: another thread is inside this object: use it from one thread at a time",
                    function);
    try {
        // Another thread may have destroyed it meanwhile.
        Status status = handle->magic.load(std::memory_order_relaxed) == Handle::living ? body(*handle->object)
                                                                                        : check_training(handle);
        handle->inside.store(false, std::memory_order_release);
        return status;
    } catch (...) {
        if (handle->object) handle->object->end_by_exception();
        handle->inside.store(false, std::memory_order_release);
        throw;
    }
}

template <class Handle, class Body>
weftResult_t guarded_training(const char* function, Handle* handle, Body&& body) noexcept {
    return guarded([&] { return enter_training(function, handle, body); });
}

template <class Handle, class Body>
weftResult_t guarded_bare_training(const char* function, Handle* handle, Body&& body) noexcept {
    return guarded_bare([&] { return enter_training(function, handle, body); });
}

template <class Handle>
weftResult_t destroy_training(const char* function, Handle* handle) noexcept {
    if (!handle) return weftSuccess;
    std::shared_ptr<typename Handle::Object> last;  // ends outside the lock
    return guarded_training(function, handle, [&](typename Handle::Object& own) -> Status {
        Status settled = own.settle();
        handle->magic.store(Handle::destroyed, std::memory_order_release);
        std::lock_guard lock(handle->mutex);
        last.swap(handle->object);
        return settled;
    });
}

template <class Handle>
weftResult_t abort_training(Handle* handle) noexcept {
    return guarded([&]() -> Status {
        WEFT_TRY(check_training(handle));
        // The function that destroys it waits for the lock, so the object ends there.
        std::lock_guard lock(handle->mutex);
        if (handle->object) handle->object->abort();
        return ok();
    });
}

template <class Object>
Status check_parameter(const char* function, const Object& object, int parameter) {
    if (parameter >= 0 && parameter < object.parameter_count()) return ok();
    return fail(error::argument_value, "{}: parameter is {}; it must be 0 to {}", function, parameter,
                object.parameter_count() - 1);
}

inline bool is_switch(int value) { return value == 0 || value == 1; }

}  // namespace weft::internal
