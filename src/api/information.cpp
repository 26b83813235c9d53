// information.cpp: versions, texts of result codes, the last error, devices, lines of the log.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "src/api/guard.hpp"
#include "src/base/log.hpp"
#include "src/comm/returned_errors.hpp"
#include "src/gpu/engine/gpu_engine.hpp"
#include "weft/weft.h"

namespace weft::internal {

namespace {

struct LastError {
    Failure failure;
    std::string text;
    const char* shown = "";
};
thread_local LastError thread_error;

// The last error of the communicator; without one, of the thread.
std::optional<Failure> error_of(weftComm* handle) {
    if (!handle || (!is_being_made(handle) && !check_handle(handle))) return {};
    // A stream's thread may write the next error meanwhile.
    std::lock_guard lock(handle->mutex);
    return handle->error;
}

const char* last_error(weftComm* handle) {
    std::optional<Failure> failure = error_of(handle);
    if (!failure) return thread_error.shown;
    // A copy: a stream's thread may write the next error. Valid until this thread's next Weft call.
    thread_local std::string text;
    return (text = failure->text()).c_str();
}

Status last_error_info(weftComm* handle, weftErrorInfo_t* info) {
    if (!info) return fail(error::argument_null, "weftGetLastErrorInfo: info is NULL");
    constexpr size_t first_version = offsetof(weftErrorInfo_t, sequence) + sizeof info->sequence;
    if (info->size < first_version)
        return fail(error::argument_config,
                    "the info was not initialised: begin with weftErrorInfo_t info = WEFT_ERROR_INFO_INITIALIZER");
    const auto of_comm = error_of(handle);
    const Failure& failure = of_comm ? *of_comm : thread_error.failure;
    weftErrorInfo_t found = WEFT_ERROR_INFO_INITIALIZER;
    found.size = info->size;
    found.id = row_of(failure.id).id;
    found.code = failure.code;
    found.failedRank = failure.facts.rank;
    found.peer = failure.facts.peer;
    found.operation = failure.facts.operation == Collective::none ? nullptr : name_of(failure.facts.operation);
    found.sequence = failure.facts.sequence;
    memcpy(info, &found, std::min(found.size, sizeof found));
    return ok();
}

}  // namespace

weftResult_t report(const Status& failure) {
    const CancelHeld held;  // the caller may be on guarded_quick()
    try {
        LastError& last = thread_error;
        last.shown = "";
        last.failure = failure.failure();
        last.text = last.failure.text();
        last.shown = last.text.c_str();
        // Other failures were logged where they were found; a wrong call is first seen here.
        if (failure.code() == weftInvalidArgument || failure.code() == weftInvalidUsage)
            WEFT_LOG(warn, coll, "{}", last.text);
        record_returned_error(failure);
    } catch (...) {
    }
    return failure.code();
}

weftResult_t report_out_of_memory() noexcept {
    LastError& last = thread_error;
    last.failure.id = error::memory_exhausted;
    last.failure.code = row_of(error::memory_exhausted).code;
    last.failure.facts = {};
    last.failure.sentence.clear();
    last.shown = "out of memory [memory.exhausted]";
    return last.failure.code;
}

}  // namespace weft::internal

extern "C" {

weftResult_t weftGetVersion(int* version) {
    return weft::internal::guarded([&]() -> weft::internal::Status {
        if (!version)
            return weft::internal::fail(weft::internal::error::argument_null, "weftGetVersion: version is NULL");
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

weftResult_t weftGetLastErrorInfo(weftComm_t comm, weftErrorInfo_t* info) {
    return weft::internal::guarded([&] { return weft::internal::last_error_info(comm, info); });
}

weftResult_t weftGetDeviceCount(int* count) {
    return weft::internal::guarded([&]() -> weft::internal::Status {
        if (!count)
            return weft::internal::fail(weft::internal::error::argument_null, "weftGetDeviceCount: count is NULL");
        *count = weft::internal::GpuEngine::devices();
        return weft::internal::ok();
    });
}

weftResult_t weftLogInfo(const char* text) {
    return weft::internal::guarded([&]() -> weft::internal::Status {
        if (!text) return weft::internal::fail(weft::internal::error::argument_null, "weftLogInfo: text is NULL");
        WEFT_LOG(info, init, "{}", text);
        return weft::internal::ok();
    });
}
}
