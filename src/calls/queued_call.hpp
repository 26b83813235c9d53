// queued_call.hpp: a call that is carried out later than it was made, and a queue of them. Small calls of a group are as
// soon done as they are kept: what few of them have lies apart.
#pragma once
#include <memory>
#include <vector>

#include "src/comm/async_operation.hpp"
#include "src/comm/handle.hpp"

namespace weft::internal {

class CoalescedCalls;

// With what it needs until then. A value: prepared ones are carried out many times.
struct QueuedCall {
    // What a call points to.
    struct Pointed {
        PeerBuffers peer_buffers;
        Access access;
        std::shared_ptr<const Communicator::MadeReduction> reduction;  // though the user may have ended it
    };

    weftComm* handle;
    Communicator::Call call;
    std::shared_ptr<AsyncOperation> async_operation = nullptr;  // null: a call
    std::shared_ptr<const Pointed> pointed = nullptr;           // null: it points to nothing but buffers
    std::shared_ptr<CoalescedCalls> coalesced = nullptr;        // of the calls that it is made of; null: it is one
    size_t number = 0;                                          // in its group, as CallStatuses has it

    QueuedCall(weftComm* on, const Communicator::Call& queued) : handle(on), call(queued) {
        if (call.peer_buffers || call.access || call.operand) [[unlikely]]
            keep_pointed();
    }
    QueuedCall(weftComm* on, std::shared_ptr<AsyncOperation> made)
        : handle(on), call{}, async_operation(std::move(made)) {}

    Status begin();
    Progress advance() const { return async_operation ? async_operation->advance() : communicator().advance(); }
    Status pause(bool may_sleep) const {
        return async_operation ? async_operation->pause(may_sleep) : communicator().pause(may_sleep);
    }
    Status take_failure() const {
        return async_operation ? async_operation->take_failure() : communicator().take_failure();
    }
    Status end() const { return async_operation ? ok() : communicator().end(); }
    Communicator& communicator() const { return *handle->communicator; }

  private:
    void keep_pointed();
};

// In their order; the first ones go.
class CallQueue {
  public:
    bool empty() const { return first_ == calls_.size(); }
    size_t size() const { return calls_.size() - first_; }
    QueuedCall& front() { return calls_[first_]; }
    const QueuedCall& front() const { return calls_[first_]; }
    auto begin() { return calls_.begin() + ptrdiff_t(first_); }
    auto end() { return calls_.end(); }
    auto begin() const { return calls_.begin() + ptrdiff_t(first_); }
    auto end() const { return calls_.end(); }

    void push_back(QueuedCall queued) { calls_.push_back(std::move(queued)); }
    void pop_front();
    // All of them.
    std::vector<QueuedCall> take();
    void put(std::vector<QueuedCall> calls);
    void clear() { put({}); }

  private:
    std::vector<QueuedCall> calls_;
    size_t first_ = 0;
};

}  // namespace weft::internal
