// result.hpp: how Weft's functions fail: an id, a code and a sentence (see error.hpp for the use). Success costs one
// null pointer and no allocation.
#pragma once
#include <fmt/core.h>

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "src/base/error.hpp"
#include "weft/types.h"

namespace weft::internal {

struct Failure {
    ErrorId id = ErrorId::none;
    weftResult_t code = weftSuccess;  // the id's code
    std::string sentence;             // the event, the rank and peer concerned, and the remedy
    FailureFacts facts = {};

    Failure() = default;
    Failure(ErrorId error, std::string text, const FailureFacts& known = {})
        : id(error), code(row_of(error).code), sentence(std::move(text)), facts(known) {}
    // As in weftGetLastError and log lines: `the sentence [mismatch.count]`. Empty without a failure.
    std::string text() const;
};

class [[nodiscard]] Status {
  public:
    Status() = default;
    Status(ErrorId error, std::string sentence) : Status(Failure{error, std::move(sentence)}) {}
    explicit Status(Failure failure) : failure_(new Failure(std::move(failure))) {}
    bool ok() const { return failure_ == nullptr; }
    explicit operator bool() const { return ok(); }
    ErrorId id() const { return failure().id; }
    weftResult_t code() const { return failure().code; }
    const std::string& sentence() const { return failure().sentence; }
    const FailureFacts& facts() const { return failure().facts; }
    std::string text() const { return failure().text(); }
    // On success: no id, weftSuccess and an empty sentence.
    const Failure& failure() const {
        static const Failure none;
        return ok() ? none : *failure_;
    }
    Status copy() const { return ok() ? Status() : Status(*failure_); }
    // Adds the known facts to a failure.
    Status about(const FailureFacts& facts) && {
        if (!ok()) failure_->facts = facts;
        return std::move(*this);
    }

  private:
    std::unique_ptr<Failure> failure_;
};

inline Status ok() { return {}; }

template <class... Arguments>
Status fail(ErrorId error, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return {error, fmt::format(format, std::forward<Arguments>(arguments)...)};
}
// The same failure with another sentence, which should contain the one of `cause`.
template <class... Arguments>
Status fail(const Status& cause, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    return Status(Failure{cause.id(), fmt::format(format, std::forward<Arguments>(arguments)...), cause.facts()});
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
