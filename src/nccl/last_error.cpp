#include "src/nccl/last_error.hpp"

#include <utility>

#include "src/nccl/translation.hpp"

namespace weft::internal::nccl {
namespace {

struct LastError {
    std::string own;       // empty: Weft's sentence is newer
    std::string returned;  // a copy: a text of Weft's is valid until the thread's next Weft call only
};
LastError& last_error() {
    thread_local LastError error;
    return error;
}

// This thread's open group.
struct OpenGroup {
    int depth = 0;
    ncclResult_t failure = ncclSuccess;  // of the first call that failed in it
};
OpenGroup& open_group() {
    thread_local OpenGroup group;
    return group;
}
ncclResult_t failed(ncclResult_t code) {
    OpenGroup& group = open_group();
    if (group.depth > 0 && group.failure == ncclSuccess) group.failure = code;
    return code;
}

}  // namespace

ncclResult_t finish(weftResult_t result) noexcept {
    if (result == weftSuccess || result == weftInProgress) [[likely]]
        return nccl_result(result);
    last_error().own.clear();
    return failed(nccl_result(result));
}

void begin_group() noexcept { ++open_group().depth; }

ncclResult_t end_group(ncclResult_t result) noexcept {
    OpenGroup& group = open_group();
    if (group.depth == 0 || --group.depth > 0) return result;
    const ncclResult_t failure = std::exchange(group.failure, ncclSuccess);
    return failure == ncclSuccess ? result : failure;
}

ncclResult_t refuse(ncclResult_t code, const char* function, std::string_view sentence) noexcept {
    try {
        last_error().own = std::string(function).append(": ").append(sentence);
    } catch (...) {
        last_error().own.clear();
    }
    return failed(code);
}

ncclResult_t refuse_unsupported(const char* function, const char* remedy) noexcept {
    try {
        return refuse(ncclInvalidUsage, function, std::string("Weft does not support this function: ") + remedy);
    } catch (...) {
        return ncclInvalidUsage;
    }
}

const char* newest_error(ncclComm_t comm) noexcept {
    LastError& error = last_error();
    if (!error.own.empty()) return error.own.c_str();
    try {
        error.returned = weftGetLastError(weft_comm(comm));
        // The error may be of a call that has no communicator, or made none.
        if (comm && error.returned.empty()) error.returned = weftGetLastError(nullptr);
    } catch (...) {
        return "no memory is left for the text of the error";
    }
    return error.returned.c_str();
}

}  // namespace weft::internal::nccl
