// guard.hpp: the frame of every function of the C interface.
// It catches exceptions, turns failures into a code and a text, and sets Weft's floating-point mode.
#pragma once
#include <new>

#include "src/base/cancellation.hpp"
#include "src/base/float_mode.hpp"
#include "src/calls/group.hpp"

namespace weft::internal {

// Keeps the failure for weftGetLastError and weftGetLastErrorInfo, and returns its code.
weftResult_t report(const Status& failure);
// The same without allocating, because an allocation could fail again and end the process.
weftResult_t report_out_of_memory() noexcept;

// Without FloatMode: for a body that computes nothing, or sets the mode itself. Also as guarded_quick().
template <class Body>
weftResult_t guarded_bare(Body&& body) noexcept {
    try {
        const Status status = body();
        if (status) [[likely]]
            return weftSuccess;
        return status.code() == weftInProgress ? weftInProgress : report(status);
    } catch (const std::bad_alloc&) {
        return report_out_of_memory();
    } catch (const std::exception& exception) {
        try {
            return report({error::internal_exception, exception.what()});
        } catch (...) {
            return report_out_of_memory();
        }
    }
}

// Without CancelHeld: for a body without cancellation points, or one that holds them off itself.
template <class Body>
weftResult_t guarded_quick(Body&& body) noexcept {
    const FloatMode mode;
    return guarded_bare(body);
}

template <class Body>
weftResult_t guarded(Body&& body) noexcept {
    const CancelHeld held;
    return guarded_quick(body);
}

// A function on a communicator: checks the handle. A body that must be alone inside takes Inside itself.
template <class Body>
Status on_comm(weftComm* handle, Body&& body) {
    WEFT_TRY(check_handle(handle));
    Status status = body();
    if (!status && status.code() != weftInProgress) [[unlikely]]
        handle->keep_error(status);
    return status;
}

template <class Body>
weftResult_t guarded_comm(weftComm* handle, Body&& body) noexcept {
    return guarded([&] { return on_comm(handle, body); });
}

// The same for calls that a group may hold: there the call of `function` gets a number, also if it is refused.
template <class Body>
Status numbered(const char* function, const weftComm* handle, Body&& body) {
    Group* const group = Group::current_open();
    if (!group) [[likely]]
        return body();
    group->count(function);
    try {
        Status status = body();
        group->made(handle, status);
        return status;
    } catch (...) {
        group->not_made();
        throw;
    }
}

template <class Body>
weftResult_t guarded_quick_call(const char* function, weftComm* handle, Body&& body) noexcept {
    return guarded_quick([&] { return numbered(function, handle, [&] { return on_comm(handle, body); }); });
}

template <class Body>
weftResult_t guarded_call(const char* function, weftComm* handle, Body&& body) noexcept {
    const CancelHeld held;
    return guarded_quick_call(function, handle, body);
}

}  // namespace weft::internal
