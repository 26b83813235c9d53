// queued_call.hpp: a call that executes later than it was made, and a queue of such calls.
// Rarely used parts lie behind pointers, because copying a small call costs as much as executing it.
#pragma once
#include <memory>
#include <vector>

#include "src/comm/async_operation.hpp"
#include "src/comm/handle.hpp"

namespace weft::internal {

class CoalescedCalls;

// A value that owns what the call needs until it executes. Prepared calls execute many times.
struct QueuedCall {
    // Copies of the structs that a call points to.
    struct Pointed {
        PeerBuffers peer_buffers;
        Access access;
        std::shared_ptr<const MadeReduction> reduction;  // the user may have destroyed it
    };

    weftComm* handle;
    Call call;
    std::shared_ptr<AsyncOperation> async_operation = nullptr;  // null: a call
    std::shared_ptr<const Pointed> pointed = nullptr;           // null: the call points to buffers only
    std::shared_ptr<CoalescedCalls> coalesced = nullptr;        // the calls coalesced into this one; null: one call
    size_t number = 0;                                          // in its group; see CallStatuses

    QueuedCall(weftComm* on, const Call& queued) : handle(on), call(queued) {
        const auto* collective = std::get_if<CollectiveCall>(&call.kind);
        if (collective ? collective->operand.data != nullptr : !call.is_message()) [[unlikely]]
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

// First in, first out.
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
    std::vector<QueuedCall> take();
    void put(std::vector<QueuedCall> calls);
    void clear() { put({}); }

  private:
    std::vector<QueuedCall> calls_;
    size_t first_ = 0;
};

}  // namespace weft::internal
