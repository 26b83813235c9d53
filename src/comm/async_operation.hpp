// async_operation.hpp: an operation on a communicator that takes several calls, such as a split.
// It is driven as a call is: begun, then advanced until done. It never blocks, so one thread can drive several ranks.
// Thread-bound.
#pragma once
#include "src/executor/progress.hpp"

struct weftComm;

namespace weft::internal {

class AsyncOperation {
  public:
    AsyncOperation() = default;
    AsyncOperation(const AsyncOperation&) = delete;
    AsyncOperation& operator=(const AsyncOperation&) = delete;
    virtual ~AsyncOperation() = default;

    // Called before the operation waits for calls in progress, which may need to see its effect. Thread-safe.
    virtual void announce() {}
    virtual Status begin() = 0;
    virtual Progress advance() = 0;
    virtual Status pause(bool may_sleep) = 0;
    // After advance() returned failed.
    virtual Status take_failure() = 0;
    // The communicator that the operation makes, if its handle has been given to the user.
    virtual const weftComm* child() const { return nullptr; }
};

}  // namespace weft::internal
