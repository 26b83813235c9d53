// result.hpp: how Weft's functions fail: a code and a sentence. Success costs one null pointer, no allocation.
#pragma once
#include <fmt/core.h>

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "weft/types.h"

namespace weft::internal {

struct Failure {
    weftResult_t code;
    std::string sentence;  // what happened, to whom, and what to do about it
};

class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(weftResult_t code, std::string sentence) : Status(Failure{code, std::move(sentence)}) {}
    explicit Status(Failure failure) : failure_(new Failure(std::move(failure))) {}
    bool ok() const { return failure_ == nullptr; }
    explicit operator bool() const { return ok(); }
    weftResult_t code() const { return ok() ? weftSuccess : failure_->code; }
    const std::string& sentence() const {
        static const std::string none;
        return ok() ? none : failure_->sentence;
    }

  private:
    std::unique_ptr<Failure> failure_;
};

inline Status ok() { return {}; }

template <class... Arguments>
Status fail(weftResult_t code, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {code, fmt::format(format, std::forward<Arguments>(arguments)...)};
}

// A system call's failure: the sentence ends with errno's text. `error` is an errno value.
std::string errno_text(int error);

template <class T>
class [[nodiscard]] Result {
  public:
    Result(T value) : value_(std::move(value)) {}
    Result(Status failure) : status_(std::move(failure)) { assert(!status_.ok()); }
    bool ok() const { return value_.has_value(); }
    explicit operator bool() const { return ok(); }
    T& operator*() { return *value_; }
    const T& operator*() const { return *value_; }
    T* operator->() { return &*value_; }
    const T* operator->() const { return &*value_; }
    const Status& status() const { return status_; }
    Status take_status() { return std::move(status_); }

  private:
    std::optional<T> value_;
    Status status_;
};

}  // namespace weft::internal

// Returns from the calling function if `expression`, a Status, is a failure.
#define WEFT_TRY(expression)                                                                      \
    do {                                                                                          \
        if (::weft::internal::Status weft_try_ = (expression); !weft_try_.ok()) return weft_try_; \
    } while (0)
