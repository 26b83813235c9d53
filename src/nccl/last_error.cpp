#include "src/nccl/last_error.hpp"

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

}  // namespace

ncclResult_t finish(weftResult_t result) noexcept {
    if (result != weftSuccess && result != weftInProgress) [[unlikely]]
        last_error().own.clear();
    return nccl_result(result);
}

ncclResult_t refuse(ncclResult_t code, const char* function, std::string_view sentence) noexcept {
    try {
        last_error().own = std::string(function).append(": ").append(sentence);
    } catch (...) {
        last_error().own.clear();
    }
    return code;
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
