#include "failure.hpp"

#include <c10/util/Exception.h>

#include <string_view>

namespace weft_torch {

void throw_failure(const std::string& text) { C10_THROW_ERROR(DistBackendError, text); }
void throw_argument(const std::string& text) { C10_THROW_ERROR(ValueError, text); }
void throw_usage(const std::string& text) { C10_THROW_ERROR(Error, text); }

void check(weftResult_t result, weftComm_t comm) {
    if (result == weftSuccess) [[likely]]
        return;
    std::string text = weftGetLastError(comm);
    if (text.empty()) text = weftGetErrorString(result);
    if (result == weftInvalidArgument) throw_argument(text);
    if (result == weftInvalidUsage) throw_usage(text);
    throw_failure(text);
}

void rethrow_for_store() {
    try {
        throw;
    } catch (const c10::DistStoreError& error) {
        throw_failure(c10::str("the store of the process group gave no answer: ", error.what_without_backtrace(),
                               "; look at the process that serves it [init.no-answer]"));
    } catch (const c10::DistNetworkError& error) {
        throw_failure(c10::str("the store of the process group is lost: ", error.what_without_backtrace(),
                               "; look at the process that serves it, usually torchrun or rank 0 [tcp.broken]"));
    }
}

c10::intrusive_ptr<c10::ivalue::Future> future_result() {
    return c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
}

c10::IValue result_of(const std::exception_ptr& failure) {
    auto result = c10d::WorkResult::SUCCESS;
    try {
        if (failure) std::rethrow_exception(failure);
    } catch (const c10::DistError& error) {
        const bool late = std::string_view(error.what_without_backtrace()).find("[timeout.") != std::string_view::npos;
        result = late ? c10d::WorkResult::TIMEOUT : c10d::WorkResult::COMM_ERROR;
    } catch (...) {
        result = c10d::WorkResult::UNKNOWN;
    }
    return int64_t(result);
}

std::exception_ptr ended_failure() {
    try {
        throw_failure("the process group was shut down or aborted before this operation began [abort.local]");
    } catch (...) {
        return std::current_exception();
    }
}

std::string wait_timeout_text(c10d::OpType type, std::chrono::milliseconds timeout) {
    return c10::str("wait() waited ", timeout.count(), " ms for ", c10d::opTypeToString(type),
                    ", which goes on; wait again, or give the operation a longer timeout [timeout.stream]");
}

}  // namespace weft_torch
