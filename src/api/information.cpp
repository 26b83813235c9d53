// information.cpp: versions, texts of results, the last error.
#include "src/api/guard.hpp"
#include "src/base/log.hpp"
#include "src/comm/returned_errors.hpp"
#include "weft/weft.h"

namespace weft::internal {

namespace {
thread_local std::string thread_error;
}

weftResult_t report(const Status& failure) {
    const CancelHeld held;  // the caller may be on guarded_quick()
    try {
        thread_error = failure.sentence();
        // Failures of the world have been logged where they were found; wrong calls are first seen here.
        if (failure.code() == weftInvalidArgument || failure.code() == weftInvalidUsage)
            WEFT_LOG(warn, coll, "{}", failure.sentence());
        record_returned_error(failure);
    } catch (...) {
    }
    return failure.code();
}

weftResult_t report_out_of_memory() noexcept {
    try {
        thread_error = "out of memory";  // short enough to lie inside the string
    } catch (...) {
    }
    return weftSystemError;
}

const char* last_error(weftComm* handle) {
    if (!handle || (!is_being_made(handle) && !check_handle(handle))) return thread_error.c_str();
    // A stream's thread may write another one: what is handed out is the caller's, and lives for some further
    // questions.
    thread_local std::string asked[4];
    thread_local unsigned next = 0;
    std::string& text = asked[next++ % std::size(asked)];
    std::lock_guard lock(handle->mutex);
    text = handle->error;
    return text.c_str();
}

}  // namespace weft::internal

extern "C" {

weftResult_t weftGetVersion(int* version) {
    return weft::internal::guarded([&]() -> weft::internal::Status {
        if (!version) return weft::internal::fail(weftInvalidArgument, "weftGetVersion: version is NULL");
        *version = WEFT_VERSION_CODE;
        return weft::internal::ok();
    });
}

const char* weftGetErrorString(weftResult_t result) {
    switch (result) {
        case weftSuccess: return "no error";
        case weftUnhandledCudaError: return "a CUDA call failed";
        case weftSystemError: return "the operating system refused";
        case weftInternalError: return "internal error of Weft";
        case weftInvalidArgument: return "invalid argument";
        case weftInvalidUsage: return "invalid usage";
        case weftRemoteError: return "another rank died, aborted or failed";
        case weftInProgress: return "in progress";
        case weftTimeout: return "the deadline passed";
        case weftMismatch: return "the ranks called different things";
        case weftNumResults: break;
    }
    return "unknown result code";
}

const char* weftGetLastError(weftComm_t comm) { return weft::internal::last_error(comm); }
}
