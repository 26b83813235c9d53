// failure.hpp: Weft's results as exceptions of torch. A failed communication is a DistBackendError with Weft's sentence; a
// wrong argument is a ValueError.
#pragma once
#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <exception>
#include <string>

#include "weft/weft.h"

namespace weft_torch {

// Throws what `result` means, unless it is weftSuccess. `comm` may be NULL: the error of this thread.
void check(weftResult_t result, weftComm_t comm = nullptr);
// Throws a DistBackendError.
[[noreturn]] void throw_failure(const std::string& text);
// Throws a ValueError.
[[noreturn]] void throw_argument(const std::string& text);
// Throws a RuntimeError.
[[noreturn]] void throw_usage(const std::string& text);

// In a handler of an exception: throws it again, and an error of torch's store as a DistBackendError with an id.
[[noreturn]] void rethrow_for_store();

// A future of c10d::WorkResult, and its value. Null: success.
c10::intrusive_ptr<c10::ivalue::Future> future_result();
c10::IValue result_of(const std::exception_ptr& failure);

std::exception_ptr ended_failure();
std::string wait_timeout_text(c10d::OpType type, std::chrono::milliseconds timeout);

}  // namespace weft_torch
