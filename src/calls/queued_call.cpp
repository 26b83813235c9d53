#include "src/calls/queued_call.hpp"

namespace weft::internal {

void QueuedCall::keep_pointed() {
    auto kept = std::make_shared<Pointed>();
    if (call.peer_buffers) kept->peer_buffers = *call.peer_buffers;
    if (call.access) kept->access = *call.access;
    if (call.operand) kept->reduction = communicator().share_reduction(call.made);
    if (call.peer_buffers) call.peer_buffers = &kept->peer_buffers;
    if (call.access) call.access = &kept->access;
    pointed = std::move(kept);
}

Status QueuedCall::begin() {
    if (async_operation) return async_operation->begin();
    return communicator().begin(call);
}

void CallQueue::pop_front() {
    // Releases what the call owns; the vector keeps the entry.
    QueuedCall& first = calls_[first_++];
    first.async_operation.reset();
    first.pointed.reset();
    first.coalesced.reset();
    if (empty()) clear();
}

std::vector<QueuedCall> CallQueue::take() {
    calls_.erase(calls_.begin(), begin());
    first_ = 0;
    return std::exchange(calls_, {});
}

void CallQueue::put(std::vector<QueuedCall> calls) {
    calls_ = std::move(calls);
    first_ = 0;
}

}  // namespace weft::internal
