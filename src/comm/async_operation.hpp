// async_operation.hpp: what is asked of a communicator and takes more than one call on it, driven as calls are: begun,
// advanced until done, never blocking, so that one thread can be several ranks. Thread-bound.
#pragma once
#include "src/executor/run.hpp"

struct weftComm;

namespace weft::internal {

class AsyncOperation {
  public:
    AsyncOperation() = default;
    AsyncOperation(const AsyncOperation&) = delete;
    AsyncOperation& operator=(const AsyncOperation&) = delete;
    virtual ~AsyncOperation() = default;

    // Where it is asked for, before it waits for calls in progress to end: what these shall know. Thread-safe.
    virtual void announce() {}
    virtual Status begin() = 0;
    virtual Progress advance() = 0;
    virtual Status pause(bool may_sleep) = 0;
    // After advance() said failed.
    virtual Status take_failure() = 0;
    // The communicator that it is to make, if that has been handed out.
    virtual const weftComm* child() const { return nullptr; }
};

}  // namespace weft::internal
